"""The tables of the literature: every model of each on every task of it, the published score beside ours.

A cell is a trial, or one for every seed. Published numbers are in published.json. What the laptop's twins reached when
they were measured is in reference.json, which holds nothing that was not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from longwave import models, tasks
from longwave.compare.match import with_hidden
from longwave.compare.settings import COLUMNS, MADE, OF_PLAN, ROWS, Row, sizes
from longwave.compare.trial import Result, Trial, read_json
from longwave.errors import UserError, choose, nearest
from longwave.registry import schema
from longwave.spec import Spec
from longwave.train.plan import Plan

HERE = Path(__file__).parent
Budget = Literal["full", "laptop"]
TOLERANCE = {"full": 1.0, "laptop": 5.0}  # points that ours may lie below what is to be reached
UNFINISHED = "X"  # in the literature: does not apply, or could not be run


@dataclass(frozen=True)
class Table:
    name: str
    source: str
    unit: str
    scale: float  # of our scores, to the table's
    columns: list[str]
    rows: dict[str, list[float | str | None]]
    averages: dict[str, float]
    unfinished: float | None  # what an X counts in the average

    def published(self, row: str, column: str) -> float | str | None:
        return self.rows[row][self.columns.index(column)]

    def average(self, scores: Sequence[float | str | None]) -> float | None:
        """As the table's own: of all columns, X as chance where it says so; None where one is missing."""
        values = [self.unfinished if each == UNFINISHED else each for each in scores]
        numbers = [each for each in values if isinstance(each, int | float)]
        return fmean(numbers) if self.averages and len(numbers) == len(values) else None


@dataclass(frozen=True)
class Cell:
    table: Table
    row: str
    column: str
    trials: list[Trial]  # by seed
    metric: str
    source: str  # of its data
    problem: str = ""  # why it has no trial

    def scores(self, done: Mapping[str, Result]) -> list[float]:
        """In units of the table."""
        results = [done[trial.name] for trial in self.trials if trial.name in done]
        return [self.table.scale * r.metrics[self.metric] for r in results if not r.error and self.metric in r.metrics]

    def errors(self, done: Mapping[str, Result]) -> list[str]:
        failed = [done[trial.name].error for trial in self.trials if trial.name in done and done[trial.name].error]
        return list(dict.fromkeys([*([self.problem] if self.problem else []), *failed]))

    def verdict(self, done: Mapping[str, Result], budget: Budget) -> str:
        """pass, FAIL, or why neither."""
        ours, aim = self.scores(done), self.aim(budget)
        if not ours:
            return "; ".join(self.errors(done)) or "not run"
        if aim is None:
            return "no reference was measured yet" if budget == "laptop" else "nothing published"
        return "pass" if fmean(ours) >= aim - TOLERANCE[budget] else "FAIL"

    def aim(self, budget: Budget) -> float | None:
        """What is to be reached: the published score, or what the twin reached when it was measured."""
        if budget == "laptop":
            return _references().get(self.table.name, {}).get(self.row, {}).get(self.column)
        published = self.table.published(self.row, self.column)
        return published if isinstance(published, float) else None


@cache
def tables() -> dict[str, Table]:
    found = read_json(HERE / "published.json")
    return {
        name: Table(name, data["source"], data["unit"], data["scale"], data["columns"], data["rows"],
                    data.get("averages", {}), data.get("unfinished"))
        for name, data in found.items()
    }  # fmt: skip


@cache
def _references() -> dict[str, Any]:
    return dict(read_json(HERE / "reference.json"))


def cells(
    table: Table, budget: Budget, *, rows: Sequence[str], columns: Sequence[str], data: Mapping[str, str], seeds: int,
    changes: Mapping[str, Any],
) -> list[Cell]:  # fmt: skip
    """Those of these rows and columns; `data` by column, `changes` to every plan."""
    made = []
    for column in columns:
        for row in rows:
            made_here = COLUMNS[table.name][column].data == MADE
            given = data.get(column) or (None if made_here else data.get(""))
            try:
                made.append(_cell(table, row, column, budget, given, seeds, changes))
            except UserError as problem:
                made.append(Cell(table, row, column, [], "", "", str(problem)))
    return made


def _cell(
    table: Table, row: str, column: str, budget: Budget, data: str | None, seeds: int, changes: Mapping[str, Any]
) -> Cell:
    setting, where = ROWS[table.name][row], COLUMNS[table.name][column]
    if where.task not in tasks.registry.names():
        raise UserError(f"there is no task {where.task!r} yet")
    work: Any = tasks.registry.get(where.task)
    options = dict(where.full if budget == "full" else where.laptop)
    takes_data = any(o.name == "data" for o in schema(work))
    if budget == "full" and takes_data and data is None and where.data != MADE:
        raise UserError(f"--data is needed: {where.data}")
    if data is not None and takes_data:
        options["data"] = data
    chosen = sizes(setting, column, budget)
    planned = {**work.plan, **{k: v for k, v in chosen.items() if k in OF_PLAN}}
    planned |= {k: v for k, v in (where.twin if budget == "laptop" else {}).items() if k in OF_PLAN}
    plan = Plan(**{**planned, **changes})
    task = _task(where.task, json.dumps(options), plan.context, plan.batch)
    spec = build(setting, chosen, task, plan, budget)
    about = task.describe()
    trials = [
        Trial(row, spec, where.task, options, Plan(**{**planned, **changes, "seed": seed}), about, measure=False)
        for seed in range(seeds)
    ]
    return Cell(
        table,
        row,
        column,
        trials,
        where.metric or task.metric,
        str(about.get("source") or f"{where.task} {options or ''}"),
    )


@cache
def _task(name: str, options: str, context: int, batch: int) -> Any:
    return tasks.create(name, json.loads(options), context=context, batch=batch, seed=0)


def build(row: Row, chosen: Mapping[str, Any], task: Any, plan: Plan, budget: str) -> Spec:
    """The model of a row, for a task."""
    name = row.preset or task.preset
    known = {o.name for o in schema(choose("model", name, models.all_presets()))}
    options = {**chosen, **row.options, **task.fits()}
    if row.preset == "wavegan":
        options["n_samples"] = _sound(plan.context)
    if not row.preset:
        assert row.mixer is not None
        heads = {"n_heads": chosen.get("n_heads", 4)} if row.heads else {}
        options |= {"mixer": row.mixer.but(**heads), "ffn": row.ffn, "bidirectional": row.both, "norm": "layer"}
    spec = models.preset(name, **{key: value for key, value in options.items() if key in known})
    if row.ffn and "d_hidden" in chosen and not row.preset:
        spec = with_hidden(spec, chosen["d_hidden"])
    if row.positions and "blocks" in spec.options:
        positions = Spec("branch", mixer=Spec("positions"), norm="none", residual="pre")
        spec = spec.but(blocks=(positions, *spec.options["blocks"]))
    return spec


def _sound(samples: int) -> int:
    """The shortest sound of 16 times a power of 4 that holds so many samples."""
    size = 16
    while size < samples:
        size *= 4
    return size


def pick(what: str, asked: str | None, known: Sequence[str]) -> list[str]:
    """One, several with commas between them, or all."""
    if asked is None:
        return list(known)
    folded = {name.lower(): name for name in known}
    found = []
    for each in asked.split(","):
        if each.lower() not in folded:
            raise UserError(f"unknown {what} {each!r}: {nearest(each, known)}")
        found.append(folded[each.lower()])
    return found


def spread(scores: Sequence[float]) -> str:
    if not scores:
        return "-"
    return f"{fmean(scores):.2f}" + (f" ± {stdev(scores):.2f}" if len(scores) > 1 else "")
