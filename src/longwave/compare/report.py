"""A comparison for people: a table, what the differences are worth, where curves cross, and a page with pictures."""

import html
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from longwave.compare.charts import Line, chart
from longwave.compare.contest import Contest, Entry, spread
from longwave.compare.curve import crossings
from longwave.compare.statistics import FEW, LEVEL, holm, permutation, welch
from longwave.files import write_whole

HEAD = ["model", "score", "parameters", "lr", "tokens/s", "memory", "a token", "state", ""]
STYLE = ("body{font:15px/1.5 sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222}"
         "table{border-collapse:collapse}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:left}"
         "svg{margin:.5em 1em .5em 0}pre{background:#f6f6f6;padding:1em;overflow:auto}")  # fmt: skip


def cells(entry: Entry, metric: str) -> list[str]:
    """A row of the table."""
    if entry.failed:
        return [entry.label, "-", *[""] * 6, f"failed: {'; '.join(entry.errors) or 'no learning rate was found'}"]
    speed = [result.tokens / result.seconds for result in entry.results if result.seconds]
    decode, state = entry.mean("decode"), entry.mean("state")
    return [
        entry.label, spread(entry.scores(metric)), f"{entry.results[0].parameters:,}", f"{entry.lr:g}",
        f"{sum(speed) / len(speed):,.0f}" if speed else "-", f"{(entry.mean('memory') or 0) / 2**20:,.0f} MiB",
        "-" if decode is None else f"{1e3 * decode:.2f} ms", "-" if state is None else size(state),
        "; ".join(_notes(entry)),
    ]  # fmt: skip


def _notes(entry: Entry) -> list[str]:
    ended = {result.ended for result in entry.results if result.ended != "done"}
    lost = len(entry.trials) - len(entry.results)
    rates = [f"{lr:g}" for lr, result in entry.tuned.items() if result.error]
    return [*ended, *([f"{lost} of {len(entry.trials)} seeds failed: {entry.errors[-1]}"] if lost else []),
            *([f"failed with lr {', '.join(rates)}"] if rates else [])]  # fmt: skip


def size(count: float) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = HEAD) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
    return "\n".join(lines)


def differences(entries: Sequence[Entry], metric: str) -> list[str]:
    """The best against each of the others."""
    done = [entry for entry in entries if not entry.failed]
    if len(done) < 2:
        return []
    best, *others = done
    runs = best.scores(metric)
    pairs = [(other, other.scores(metric)) for other in others]
    fewest = min(len(each) for each in [runs, *(scores for _, scores in pairs)])
    if fewest < 2:
        return ["one seed each: nothing can be said about whether the differences are chance; --seeds 3 or more"]
    said = []
    adjusted = holm([welch(runs, scores) for _, scores in pairs])
    for (other, scores), p in zip(pairs, adjusted, strict=True):
        dealt = permutation(runs, scores)
        verdict = "differ" if p < LEVEL else "cannot be told apart"
        said.append(f"{best.label} and {other.label} {verdict}: p = {p:.2g} (Welch's t-test over seeds, Holm's "
                    f"correction for {len(pairs)}); {dealt:.2g} by permutation, which cannot be below "
                    f"{2 / math.comb(len(runs) + len(scores), len(runs)):.2g}")  # fmt: skip
    if fewest < FEW:
        said.append(f"{fewest} seeds are too few to trust a test: --seeds {FEW} or more")
    return said


def crossed(entries: Sequence[Entry]) -> list[str]:
    """Where two curves change places: losses over tokens and over time, costs over length."""
    done = [entry for entry in entries if not entry.failed]
    said = []
    for a, b in itertools.combinations(done, 2):
        for what, unit in (("tokens", "tokens"), ("seconds", "s of training")):
            places = crossings(*a.curve(what), *b.curve(what))
            if places:
                said.append(f"the losses of {a.label} and {b.label} cross at {_places(places)} {unit}")
        places = crossings(*a.by_length("seconds"), *b.by_length("seconds"))
        if places:
            said.append(f"a training step of {a.label} and of {b.label} costs the same at {_places(places)} tokens "
                        "of length")  # fmt: skip
    return said


def _places(places: Sequence[float]) -> str:
    return ", ".join(f"{place:,.0f}" if place >= 10 else f"{place:.2g}" for place in places)


def write(path: Path, contest: Contest, entries: Sequence[Entry], title: str, budget: str) -> Path:
    """One page that needs nothing else."""
    rows = [HEAD, *(cells(entry, contest.metric) for entry in entries)]
    cell = ["th", *["td"] * (len(rows) - 1)]
    lines = ["".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row)
             for tag, row in zip(cell, rows, strict=True)]  # fmt: skip
    said = [*differences(entries, contest.metric), *crossed(entries)]
    how = {"plan": asdict(contest.plan), "task": {"name": contest.task, **contest.options},
           "models": {label: spec.to_json() for label, spec in contest.models.items()}}  # fmt: skip
    page = "\n".join([
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>",
        f"<p>score: {html.escape(contest.metric)}, {contest.better} is better, the mean and standard deviation over "
        f"seeds; {html.escape(budget)}</p>",
        "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>",
        "<ul>" + "\n".join(f"<li>{html.escape(line)}</li>" for line in said) + "</ul>",
        *pictures(entries, contest.metric),
        f"<h2>Everything that was set</h2><pre>{html.escape(json.dumps(how, indent=1))}</pre></html>",
    ])  # fmt: skip
    write_whole(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def pictures(entries: Sequence[Entry], metric: str) -> list[str]:
    done = [entry for entry in entries if not entry.failed]
    loss = [(what, [Line(entry.label, *entry.curve(what)) for entry in done]) for what in ("tokens", "seconds")]
    score = [_banded(entry) for entry in done]
    cost = [Line(entry.label, *entry.by_length("seconds")) for entry in done]
    return [
        chart("loss against tokens", "tokens seen", "loss in validation", loss[0][1], log_y=True),
        chart("loss against time", "seconds of training", "loss in validation", loss[1][1], log_y=True),
        chart("score against length", "tokens", metric, score, log_x=True),
        chart("cost against length", "tokens", "seconds a training step", cost, log_x=True, log_y=True),
    ]


def _banded(entry: Entry) -> Line:
    """Scores by length, between the least and the best seed."""
    x, y = entry.by_length("score")
    every = [at for result in entry.results for at in result.lengths]
    values = [[at.score for at in every if at.tokens == n and at.score is not None] for n in x]
    return Line(entry.label, x, y, [min(v) for v in values], [max(v) for v in values])
