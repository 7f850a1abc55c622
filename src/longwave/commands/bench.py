"""ops, train or length: how fast, beside peers and the limits of this machine"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from longwave.allocator import tune_cpu
from longwave.commands._common import word
from longwave.errors import UserError, choose
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option

OWN_ALLOCATOR = True  # set as --allocator says, for the peers too
FLAGS = [
    Option("peers", bool, False, "beside what a user would otherwise pick; exit 1 where a target is missed"),
    Option("only", str, "", "rows whose name has this in it; for length: mixers, with commas between them"),
    Option("tokens", int, 1 << 20, "length: up to so many"),
    Option("resume", bool, False, "length: mixers that the JSON in --out has, at so many tokens, are not run again"),
    Option("allocator", Literal["tuned", "stock", "both"], "tuned", "how memory is got, for us and for peers"),
    Option("out", str, "runs/bench", "the folder of the JSON and the plots"),
]


def run(argv: Sequence[str]) -> int:
    """Measure; print a table, write JSON and plots."""
    words, how = parse(
        "bench", argv, [Group("bench", "what and how", FLAGS)], [word("what", REQUIRED, "ops, train or length")]
    )
    work = choose("bench", words["what"], {"ops": _races, "train": _races, "length": _length})
    if how["allocator"] == "both":
        each = [_again(argv, mode) for mode in ("tuned", "stock")]
        return max(each)
    if how["allocator"] == "tuned":
        tune_cpu()
    return work(words["what"], how)


def _again(argv: Sequence[str], allocator: str) -> int:
    """In a process of its own: the allocator's setting cannot be taken back."""
    print(f"\nallocator: {allocator}", flush=True)
    words = [
        each.replace("both", allocator) if "--allocator" in (before, each.partition("=")[0]) else each
        for before, each in zip(["", *argv], argv, strict=False)
    ]
    call = [sys.executable, "-c", "from longwave.cli import entry; entry()", "bench", *words]
    return subprocess.run(call, check=False).returncode


def _races(what: str, how: dict[str, Any]) -> int:
    from longwave.bench import limits, report

    most = limits.measure()
    print("limits: " + ", ".join(f"{name} {value / 1e9:.0f} G/s" for name, value in most.items()))
    print(limits.machine(), flush=True)
    rows = []
    print(report.table([]), flush=True)
    for measured in _measured(what, how, most):
        rows.append(measured)
        print("| " + " | ".join(measured.cells()) + " |", flush=True)
    if not rows:
        raise UserError(f"no row has {how['only']!r} in its name")
    path = report.write(Path(how["out"]), f"{what}-{how['allocator']}", limits.machine(), {"limits": most}, rows)
    print(f"\nwritten: {path}")
    return 1 if how["peers"] and any(row.missed for row in rows) else 0


def _measured(what: str, how: dict[str, Any], most: dict[str, float]) -> Any:
    from longwave.bench import ops, train

    if what == "train":
        for name in train.MODELS:
            if how["only"] in name:
                yield from train.measure(name, most, how["peers"], stock=how["allocator"] == "stock")
        return
    for make in ops.contests():
        contest = make()
        if how["only"] in contest.op:
            yield from ops.measure(contest, most, how["peers"])


def _length(what: str, how: dict[str, Any]) -> int:
    from longwave.bench import length, limits, report

    names = [name for name in how["only"].split(",") if name] or [*length.subquadratic(), "attention"]
    head = ["mixer", "tokens", "forward", "training step", "memory", "slopes", ""]
    print(limits.machine())
    print(report.table([], head), flush=True)
    folder, known = Path(how["out"]), {}
    if how["resume"]:
        known = {row["mixer"]: length.Curve(**row) for row in report.read(folder, "length")}
        known = {name: curve for name, curve in known.items() if curve.covers(how["tokens"])}
    curves = []
    for name in names:
        curves.append(known.get(name) or length.measure(name, how["tokens"]))
        print("| " + " | ".join(_cells(curves[-1])) + " |", flush=True)
        path = report.write(folder, "length", limits.machine(), {}, curves)
    picture = report.plot_lengths(folder / "length.png", curves)
    print(f"\nwritten: {path}, {picture}")
    return 1 if any(curve.missed for curve in curves) else 0


def _cells(curve: Any) -> list[str]:
    from longwave.bench.report import duration

    if not curve.tokens:
        return [curve.mixer, "", "", "", "", "", curve.error]
    slopes = ", ".join(f"{s:.2f}" for s in curve.slopes)
    return [
        curve.mixer, f"{curve.tokens[-1]:,}", duration(curve.forward[-1]), duration(curve.training[-1]),
        f"{curve.memory[-1] / 2**30:.2f} GiB", slopes, curve.error or ("MISSED" if curve.missed else ""),
    ]  # fmt: skip
