"""The documentation is true: every snippet in it runs, and a page can be made of everything that is registered."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch

from longwave import mixers, models
from longwave.cli import main
from longwave.commands._common import op_summaries

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SETUP = ("make ", "git clone", "cd ", "pip install")  # run by whoever sets the project up, and by CI itself

sys.path.insert(0, str(ROOT / "docs"))


def snippets(file):
    """(language, code) of every fenced block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_every_snippet_runs(file, tmp_path, monkeypatch, capsys):
    for page in ("README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / page, tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "snippet"}
    for language, code in snippets(file):
        if language == "python":
            if title := re.match(r"# (\w+\.py)\n", code):  # a block that begins with a file's name is that file
                Path(title[1]).write_text(code, encoding="utf-8")
            torch.manual_seed(0)
            exec(compile(code, f"{file.name}: {code.splitlines()[0]}", "exec"), names)
        elif language == "sh":
            for line in filter(None, code.splitlines()):
                run_line(line.partition("  #")[0], capsys)
        else:
            assert language in ("text", "toml"), f"{file.name}: a block of {language} is run by nobody"


def run_line(line, capsys):
    if line.startswith(SETUP):
        return
    verb, *words = shlex.split(line)
    assert verb == "longwave", line
    assert main(words) == 0, f"{line}\n{capsys.readouterr().err}"


def test_links_lead_somewhere():
    for file in WRITTEN:
        text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            made = file.parent.name == "docs" and target.startswith(("mixers/", "ops/", "models/"))
            assert made or "://" in target or (file.parent / target).exists(), f"{file.name} links to {target}"


def test_everything_has_a_page(tmp_path):
    import build

    build.write_pages(tmp_path / "pages")
    for kind, names in (("mixers", mixers.names()), ("ops", op_summaries()), ("models", models.names())):
        for name in names:
            page = (tmp_path / "pages" / kind / f"{name}.md").read_text(encoding="utf-8")
            assert page.startswith(f"# {name}\n")
            assert "```" in page
            assert len(re.findall(r"^\s*```", page, re.MULTILINE)) % 2 == 0, f"{name}: a block is not closed"
    for name in mixers.names():
        page = (tmp_path / "pages" / "mixers" / f"{name}.md").read_text(encoding="utf-8")
        for part in ("Recurrence", "Parallel form", "Cost", "Paper", "Deviations"):
            assert f"\n## {part}\n" in page, f"{name} lacks {part}"


def test_the_table_measures():
    import build

    row = build.measured("lstm")
    assert "10 of 10" in row
    assert "0.5 KiB" in row
    assert re.search(r"torch\.nn\.LSTM.*\de-\d\d", row)


def test_the_table_names_only_what_there_is():
    table = (ROOT / "docs" / "mixers.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[(\w+)\]", table, re.MULTILINE)
    assert named
    assert set(named) <= set(mixers.names())
    assert "BROKEN" not in table
