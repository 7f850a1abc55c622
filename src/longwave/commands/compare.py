"""MIXER...: teach each the same task under the same conditions, and say which does best"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from longwave import mixers, models
from longwave.commands._plan import Flags, read_flags
from longwave.commands._trials import RUNNING, budget_words, duration, engine, leading_words, say_how_to_go_on
from longwave.errors import UserError, nearest
from longwave.registry import REQUIRED, Option, schema
from longwave.spec import Spec

Match = Literal["params", "flops", "time", "steps"]


def run(argv: Sequence[str]) -> int:
    """Match, tune, train; then a table, and a page with pictures."""
    labels = leading_words(argv)
    flags = read_flags("compare", argv, _own, mixers_in(labels), [
        Option("mixers", tuple[str, ...], REQUIRED, "what to compare; a,b is a hybrid of two in turn; or presets"),
    ], without={"mixer", "minutes"})  # fmt: skip
    if len(set(labels)) < 2:
        raise UserError("a comparison needs two mixers or more: longwave compare attention mamba --task recall; "
                        "longwave list mixers")  # fmt: skip
    minutes = duration(flags.own["budget"]) / 60
    from longwave.compare import report
    from longwave.compare.contest import Contest
    from longwave.compare.engine import Stopped
    from longwave.train.plan import Plan

    home = Path(flags.own["out"] or f"runs/compare-{flags.task}")
    home.mkdir(parents=True, exist_ok=True)
    plan = Plan(**flags.plan, minutes=minutes)
    task = flags.make_task()
    builds = {label: partial(build, flags, task, label) for label in dict.fromkeys(labels)}
    fits, plan = matched(builds, flags, task, plan, home)
    contest = Contest(
        fits, flags.task, flags.of_task, task.describe(), plan, task.metric, task.better, flags.own["seeds"],
        flags.own["rates"], flags.own["tuning"],
    )  # fmt: skip
    try:
        entries = contest.run(home, engine(flags.own))
    except Stopped:
        return say_how_to_go_on("compare", argv)
    rows = [report.cells(entry, task.metric) for entry in entries]
    print(f"\n{flags.task}: {task.metric}, {task.better} is better; {budget_words(plan)}\n")
    print(report.table(rows))
    for said in (report.differences(entries, task.metric), report.crossed(entries)):
        print(*(["", *said] if said else []), sep="\n", end="\n" if said else "")
    title = f"{flags.task}: {', '.join(contest.models)}"
    print(f"\n{report.write(home / 'report.html', contest, entries, title, budget_words(plan))}")
    return 1 if all(entry.failed for entry in entries) else 0


def _own(task: str, preset: str) -> list[Option]:
    return [
        Option("task", str, task, "the work to learn: longwave list tasks"),
        Option("model", str, preset, "the preset that the mixers are put into: longwave list models"),
        Option("budget", str, "2m", "training time of a trial: 90s, 10m, 1h; --steps instead: so many steps"),
        Option("match", Match, "params", "made equal by the width: params, or flops (with as many steps); steps: "
               "as many as the slowest has time for; time: nothing else"),
        Option("seeds", int, 3, "runs of each, with different seeds"),
        Option("rates", int, 3, "learning rates to choose from, three times apart, around --lr; 1: --lr itself"),
        Option("tuning", float, 0.2, "of the budget, for each of them"),
        Option("out", str | None, None, "the folder of the trials; None: runs/compare-TASK"),
        *RUNNING,
    ]  # fmt: skip


def build(flags: Flags, task: Any, label: str, width: int) -> Spec:
    """A mixer in the preset, or a preset of its own."""
    if label in models.all_presets() and not set(label.split(",")) <= set(mixers.names()):
        known = {o.name: o for o in schema(models.all_presets()[label])}
        default = {o.name: o.default for o in schema(models.all_presets()[flags.preset])}
        given = {k: v for k, v in flags.options.items() if k in known and v != default[k]}
        plan = {k: v for k, v in flags.plan.items() if k in known}
        wide = {"d_model": width} if "d_model" in known else {}
        return models.preset(label, **{**given, **plan, **task.fits(), **wide})
    return flags.spec(task, label.split(","), **({"d_model": width} if "d_model" in flags.options else {}))


def matched(
    builds: Mapping[str, Callable[[int], Spec]], flags: Flags, task: Any, plan: Any, home: Path
) -> tuple[dict[str, Spec], Any]:
    """The models, made equal as asked; and the plan, with steps where they are to be equal."""
    from longwave.compare import match

    how, width = flags.own["match"], flags.options.get("d_model", 128)
    specs = {label: make(width) for label, make in builds.items()}
    fit = {"params": match.parameters, "flops": match.flops(task)}.get(how)
    if fit is not None:
        able = {label: make for label, make in builds.items() if match.possible(make, width)}  # the others say why
        for label, found in match.match(able, width, fit).items():
            specs[label] = found.spec
            if abs(found.off) > match.WITHIN:
                print(f"{label}: no width brings it nearer than {found.off:+.1%} of the {how} of the others",
                      file=sys.stderr)  # fmt: skip
    if how in ("flops", "steps") and not plan.steps:
        plan = match.same_steps(specs, task, plan, home)
    return specs, plan


def mixers_in(labels: Sequence[str]) -> list[str]:
    """The mixers named; an error where a name is neither that nor a preset's."""
    presets = models.all_presets()
    found = []
    for label in labels:
        names = label.split(",")
        if set(names) <= set(mixers.names()):
            found += names
        elif label not in presets:
            wrong = next(name for name in names if name not in mixers.names())
            raise UserError(f"unknown mixer {wrong!r}: {nearest(wrong, [*mixers.names(), *presets])}")
    return found
