"""TABLE: the tables of the literature, every row of each trained, measured or counted beside what was published"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from longwave.commands import _costs
from longwave.commands._common import word
from longwave.commands._trials import RUNNING, duration, engine, say_how_to_go_on
from longwave.errors import choose
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option

FLAGS = [
    Option("row", str | None, None, "one model of the table, or several with commas between them; None: all"),
    Option("column", str | None, None, "one of its tasks, or several; None: all"),
    Option("budget", Literal["full", "laptop"], "laptop", "the paper's setting, or a twin for a laptop"),
    Option("data", str, "", "where the data are: a folder, or COLUMN=FOLDER,COLUMN=FOLDER"),
    Option("seeds", int, 1, "runs of each cell"),
    Option("time", str | None, None, "training time of a cell, in place of its own: 90s, 3m"),
    Option("steps", int | None, None, "and steps"),
    Option("out", str | None, None, "the folder of the trials; None: runs/reproduce-TABLE"),
    *RUNNING,
]


WORDS = "lra, speech, pixels, translation, glue, complexity or paths"
MEASURED = {"complexity": _costs.reproduce_complexity, "paths": _costs.reproduce_paths}  # nothing is trained


def run(argv: Sequence[str]) -> int:
    """Train what is not trained yet; show the table."""
    words, own = parse("reproduce", argv, [Group("run", "what of the table, and how", FLAGS)],
                       [word("table", REQUIRED, WORDS)])  # fmt: skip
    from longwave.compare import reproduce
    from longwave.compare.engine import Stopped

    if words["table"] in MEASURED:
        return 0 if MEASURED[words["table"]](own) else 1
    table: Any = choose("table", words["table"], {**reproduce.tables(), **MEASURED})
    changes: dict[str, Any] = {"steps": own["steps"]} if own["steps"] else {}
    if own["time"]:
        changes |= {"minutes": duration(own["time"]) / 60, "steps": None}
    found = reproduce.cells(
        table, own["budget"], rows=reproduce.pick("row", own["row"], list(table.rows)),
        columns=reproduce.pick("column", own["column"], table.columns), data=_data(own["data"]),
        seeds=own["seeds"], changes=changes,
    )  # fmt: skip
    home = Path(own["out"] or f"runs/reproduce-{table.name}")
    home.mkdir(parents=True, exist_ok=True)
    try:
        done = engine(own)(list({t.name: t for cell in found for t in cell.trials}.values()), home)
    except Stopped:
        return say_how_to_go_on("reproduce", argv)
    _show(table, found, done, own["budget"])
    kept = _keep(home / f"{own['budget']}.json", found, done)
    print(f"\n{kept}; the curves are in {home}/*/log.jsonl")
    return 1 if any(cell.verdict(done, own["budget"]) == "FAIL" for cell in found) else 0


def _show(table: Any, found: Sequence[Any], done: dict[str, Any], budget: Any) -> None:
    from longwave.compare.report import table as in_columns
    from longwave.compare.reproduce import TOLERANCE, spread
    from longwave.compare.settings import ROWS

    aims = {"full": "the published score", "laptop": "what its twin reached when it was measured"}
    print(f"\n{table.source}; {table.unit}; what passes is at most {TOLERANCE[budget]:g} below {aims[budget]}\n")
    rows = []
    for cell in found:
        published, aim = table.published(cell.row, cell.column), cell.aim(budget)
        reference = [] if budget == "full" else ["-" if aim is None else f"{aim:.2f}"]
        rows.append([cell.row, cell.column, "-" if published is None else f"{published}", *reference,
                     spread(cell.scores(done)), cell.verdict(done, budget)])  # fmt: skip
    print(in_columns(rows, ["model", "task", "published", *([] if budget == "full" else ["reference"]), "ours", ""]))
    print()
    for name in dict.fromkeys(cell.row for cell in found):
        scores = [cell.scores(done) for cell in found if cell.row == name]
        ours = [sum(each) / len(each) if each else None for each in scores]
        average = table.average(ours) if len(ours) == len(table.columns) else None
        if average is not None:
            print(f"{name}: {average:.2f} on average, published {table.averages[name]:g}")
        if note := ROWS[table.name][name].note:
            print(f"{name}: {note}")
    for source in dict.fromkeys(cell.source for cell in found if cell.source):
        print(f"data: {source}")


def _keep(file: Path, found: Sequence[Any], done: dict[str, Any]) -> Path:
    """The means as data, in the form of the references."""
    from longwave.compare.trial import write_json

    kept: dict[str, dict[str, float]] = {}
    for cell in found:
        if scores := cell.scores(done):
            kept.setdefault(cell.row, {})[cell.column] = round(sum(scores) / len(scores), 2)
    write_json(file, {found[0].table.name: kept} if found else {})
    return file


def _data(text: str) -> dict[str, str]:
    """By column; one folder for all under the name ""."""
    parts = dict(part.partition("=")[::2] for part in text.split(",") if "=" in part)
    return parts or ({"": text} if text else {})
