"""The documentation, made from what the code says of itself.

    python docs/build.py            pages into build/docs, the site into site/
    python docs/build.py --table    measures every mixer first and rewrites docs/mixers.md, which the repository keeps

A page per mixer, op and model comes from docstrings and signatures; pages written by hand lie beside this file.
"""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from longwave import mixers, models, ops
from longwave.commands._common import op_summaries
from longwave.dims import LEGEND
from longwave.laws import Case, Subject, check
from longwave.ops.dispatch import ALL
from longwave.registry import REQUIRED, schema
from longwave.tolerance import apart

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
ORACLES = ROOT / "tests"
WIDTH, SHORT, LONG = 64, 1000, 2000  # what states are measured at: model width, and after how many tokens


def prose(text: str) -> str:
    """A docstring as Markdown: indented lines are equations or code, `Part:` at the start of a line is a heading."""
    lines, inside = [], False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if indented and not inside:
            lines += ["", "```text"]
        if inside and not indented and line.strip():
            lines += ["```", ""]
        inside = indented or (inside and not line.strip())
        heading = re.match(r"^(Recurrence|Parallel form|Cost|Paper|Deviations)\b(.*?):(?=\s|$)\s*(.*)$", line)
        if heading:
            part, aside, rest = heading.groups()
            lines += ["", f"## {part}", "", *([f"{aside.strip()}"] if aside.strip() else []), rest]
        else:
            lines.append(line[4:] if indented else line)
    text = "\n".join([*lines, "```"] if inside else lines)
    return re.sub(r"\n+```\n", "\n```\n", re.sub(r"\n{3,}", "\n\n", text)).strip() + "\n"


def options_table(make: Callable[..., Any]) -> str:
    rows = [
        f"| `{o.name}` | {'required' if o.default is REQUIRED else f'`{o.default!r}`'} | {o.help} |".replace("\n", " ")
        for o in schema(make)
    ]
    return (
        "\n".join(["## Options", "", "| option | default | what it does |", "|---|---|---|", *rows, ""]) if rows else ""
    )


def source(thing: Any) -> str:
    return f'??? note "Source"\n\n    ```python\n{_indented(inspect.getsource(thing))}    ```\n'


def mixer_page(name: str) -> str:
    cls = mixers.registry.get(name)
    text = inspect.getdoc(inspect.getmodule(cls)) or ""
    oracle = oracle_of(name)
    compared = f"## Compared with\n\n{inspect.getdoc(oracle)}\n" if oracle else ""
    return "\n".join([f"# {name}\n", prose(text), options_table(cls), compared, source(inspect.getmodule(cls))])


def op_page(name: str) -> str:
    op = ALL.get(name) or getattr(ops, name)
    definition = getattr(op, "reference", op)
    text = prose(inspect.getdoc(inspect.getmodule(definition)) or "")
    forms = [f"`{form.name}`" for form in ALL[name].forms()] if name in ALL else []
    listed = f"## Forms\n\n{', '.join(forms)}; the first that can run and is worth it is taken.\n" if forms else ""
    code = inspect.getsource(definition)
    return f"# {name}\n\n{text}\n{listed}\n## Definition\n\n```python\n{code}```\n"


def model_page(name: str) -> str:
    make = models.all_presets()[name]
    return f"# {name}\n\n{inspect.getdoc(make)}\n\n{options_table(make)}\n```python\n{inspect.getsource(make)}```\n"


def legend_page() -> str:
    rows = [f"| {letter} | {meaning} |" for letter, meaning in LEGEND.items()]
    return "\n".join(["# Letters in shapes\n", "| letter | meaning |", "|---|---|", *rows, ""])


def write_pages(folder: Path = PAGES) -> None:
    kinds: dict[str, tuple[list[str], Callable[[str], str]]] = {
        "mixers": (mixers.names(), mixer_page),
        "ops": (list(op_summaries()), op_page),
        "models": (models.names(), model_page),
    }
    shutil.rmtree(folder, ignore_errors=True)
    for kind, (names, page) in kinds.items():
        (folder / kind).mkdir(parents=True)
        for name in names:
            (folder / kind / f"{name}.md").write_text(page(name), encoding="utf-8")
    for file in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.png")]:
        target = folder / file.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for file, title in (("README", "index"), ("CONTRIBUTING", "contributing"), ("CHANGELOG", "changelog")):
        text = (ROOT / f"{file}.md").read_text(encoding="utf-8")
        (folder / f"{title}.md").write_text(text.replace("](docs/", "]("), encoding="utf-8")
    (folder / "legend.md").write_text(legend_page(), encoding="utf-8")


def oracle_of(name: str) -> Any:
    if str(ORACLES) not in sys.path:
        sys.path.insert(0, str(ORACLES))
    if not (ORACLES / "oracles" / f"{name}.py").exists():
        return None
    return importlib.import_module(f"oracles.{name}")


def measured(name: str) -> str:
    """A mixer's row of the table: everything in it but the paper and the cost is measured here."""
    torch.set_num_threads(1)
    text = inspect.getdoc(inspect.getmodule(mixers.registry.get(name))) or ""
    subject = Subject(name, WIDTH)
    size = "none"
    if subject.causal:
        mixer, case = subject.make(Case(dtype=torch.float32)), Case(dtype=torch.float32)
        with torch.no_grad():
            sizes = [mixer(subject.x(case, T=T), subject.state(mixer, case))[1].nbytes for T in (SHORT, LONG)]
        size = f"{sizes[0] / 1024:.1f} KiB" + ("" if sizes[0] == sizes[1] else f", then {sizes[1] / 1024:.1f}")
    verdicts = check(name, dtypes=(torch.float64,)).verdicts
    kept = sum(v.kept is True for v in verdicts)
    others = ", ".join(v.law if v.kept is None else f"{v.law} BROKEN" for v in verdicts if not v.kept)
    oracle, compared = oracle_of(name), ""
    if oracle is not None:
        torch.manual_seed(0)
        gap = max(apart(ours, theirs) for _, ours, theirs in oracle.pairs())
        compared = f"{(inspect.getdoc(oracle) or '').splitlines()[0]} {gap:.0e}"
    laws = f"{kept} of {len(verdicts)}" + (f" (not declared: {others})" if others else "")
    cells = [f"[{name}](mixers/{name}.md)", _part(text, "Paper"), _part(text, "Cost"), size, laws, compared]
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def write_table(file: Path = ROOT / "docs" / "mixers.md") -> None:
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(measured, mixers.names()))
    head = f"""# Every mixer

Made by `make docs`. State: bytes a row at width {WIDTH} in float32 after {SHORT:,} tokens ("then": after
{LONG:,}). Laws: how many of the ten hold in float64 (one that sees the whole sequence has no state: three of them
do not apply). Compared with: the oracle of `tests/oracles`, and the largest difference from it over outputs, states and
gradients, in float64, relative to one plus the largest value.

| mixer | paper | cost | state | laws kept | compared with, largest difference |
|---|---|---|---|---|---|
"""
    file.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


def _part(text: str, name: str) -> str:
    found = re.search(rf"^{name}\b[^:\n]*:\s*(.*?)(?=\n\s*\n|\n[A-Z][a-z ]+:|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found.group(1).split()) if found else ""


def _indented(code: str) -> str:
    return "".join("    " + line if line.strip() else line for line in code.splitlines(keepends=True))


def main(argv: list[str]) -> None:
    if "--table" in argv:
        write_table()
    write_pages()
    config = ROOT / "docs" / "mkdocs.yml"
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # its theme advertises a successor
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", config], check=True, env=quiet
    )


if __name__ == "__main__":
    main(sys.argv[1:])
