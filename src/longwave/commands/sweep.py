"""FLAG=VALUES...: train with many values of some flags, and say which are best"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from longwave.commands._plan import Flags, read_flags
from longwave.commands._trials import RUNNING, budget_words, engine, leading_words, say_how_to_go_on
from longwave.errors import UserError
from longwave.flags import chosen
from longwave.registry import REQUIRED, Option

WORDS = [Option("values", tuple[str, ...], REQUIRED, "lr=1e-3,3e-3 or, to draw from, lr=1e-4..1e-2")]
How = Literal["grid", "random", "asha"]


def run(argv: Sequence[str]) -> int:
    """Make a trial of every point, run them, print a table."""
    words = leading_words(argv)
    base = list(argv[len(words) :])
    if {"-h", "--help"} & {*base}:
        _flags(words, {}, base)
    if not words:
        raise UserError("say what to try: longwave sweep lr=1e-3,3e-3 d-model=64,128 --task recall")
    from longwave.compare.engine import Stopped
    from longwave.compare.search import Axis, Halving, drawn, grid

    axes = [Axis.read(word) for word in words]
    for axis in axes:
        if any(word.partition("=")[0] == f"--{axis.flag}" for word in base):
            raise UserError(f"--{axis.flag} is given and swept over: one of them")
    own = _flags(words, {axis.flag: axis.first for axis in axes}, base).own
    points = grid(axes) if own["how"] == "grid" else drawn(axes, own["trials"], own["draw"])
    trials = _trials(words, points, base)
    task: Any = trials[0].make_task()
    home = Path(own["out"] or f"runs/sweep-{trials[0].task}")
    home.mkdir(parents=True, exist_ok=True)
    sign = -1 if task.better == "higher" else 1
    halving = Halving(trials, lambda result: sign * result.metrics[task.metric])
    try:
        if own["how"] == "asha":
            engine(own)(halving.first(), home, then=halving.then)
        else:
            halving.judge(engine(own)(trials, home))
    except Stopped:
        return say_how_to_go_on("sweep", argv)
    return _show(points, halving, task, base)


def _flags(words: Sequence[str], point: Mapping[str, str], base: Sequence[str]) -> Flags:
    """What `train` would have read, and the sweep's own."""

    def own(task: str, preset: str) -> list[Option]:
        return [
            Option("task", str, task, "the work to learn: longwave list tasks"),
            Option("model", str, preset, "the preset to build: longwave list models"),
            Option("how", How, "grid", "every value with every other; random draws; or asha: short trials, whose best "
                   "third goes on to three times as long ones, and again"),
            Option("trials", int, 18, "draws"),
            Option("draw", int, 0, "seed of the draws"),
            Option("out", str | None, None, "the folder of the trials; None: runs/sweep-TASK"), *RUNNING,
        ]  # fmt: skip

    typed = [*base, *(f"--{flag}={value}" for flag, value in point.items())]
    names = [name for name in chosen(typed, "--mixer", "").split(",") if name]
    return read_flags("sweep", [*words, *typed], own, names, WORDS)


def _trials(words: Sequence[str], points: Sequence[Mapping[str, str]], base: Sequence[str]) -> list[Any]:
    from longwave.compare.trial import Trial
    from longwave.train.plan import Plan

    tasks: dict[str, Any] = {}  # one for all points that do not change it: reading data may take long
    trials = []
    for point in points:
        flags = _flags(words, point, base)
        key = str((flags.task, flags.of_task, *(flags.plan[name] for name in ("context", "batch", "seed"))))
        task = tasks.setdefault(key, None) or flags.make_task()
        tasks[key] = task
        label = " ".join(f"{flag}={value}" for flag, value in point.items())
        spec = flags.spec(task, list(flags.mixers))
        trials.append(Trial(label, spec, flags.task, flags.of_task, Plan(**flags.plan), task.describe(), final=False))
    return trials


def _show(points: Sequence[Mapping[str, str]], halving: Any, task: Any, base: Sequence[str]) -> int:
    """The best first; those that went farther before all others."""
    from longwave.compare.report import table

    order = halving.order()
    flags = list(points[0])
    head = [*flags, task.metric, "loss", "parameters", "steps", "seconds", ""]
    rows = []
    for which, result in order:
        values = [points[which][flag] for flag in flags]
        if result.error:
            rows.append([*values, *["-"] * 5, f"failed: {result.error}"])
            continue
        numbers = [f"{result.metrics[task.metric]:.4f}", f"{result.metrics['loss']:.4f}", f"{result.parameters:,}",
                   f"{result.steps:,}", f"{result.seconds:.1f}"]  # fmt: skip
        rows.append([*values, *numbers, "" if result.ended == "done" else result.ended])
    print(f"\n{task.metric}, {task.better} is better, in validation; {budget_words(halving.trials[0].plan)}\n")
    print(table(rows, head))
    best, result = order[0]
    if result.error:
        return 1
    ours = {"--how", "--trials", "--draw", "--out", "--jobs", "--threads", "--engine"}
    kept, skip = [], False
    for word in base:  # those flags all take a value
        if not skip and word.partition("=")[0] not in ours:
            kept.append(word)
        skip = not skip and word in ours
    typed = [part for flag, value in points[best].items() for part in (f"--{flag}", value)]
    print(f"\ntrain the best:  {shlex.join(['longwave', 'train', *kept, *typed])}")
    return 0
