"""The flags of a run, which `train` and `estimate` share: a task and its options, a plan, a preset and its mixers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longwave import mixers, models, tasks
from longwave.commands._common import changed_options, mixer_group
from longwave.errors import choose
from longwave.flags import Group, chosen, parse
from longwave.registry import Option, schema
from longwave.spec import Spec

BOARD = Option("tensorboard", bool, False, "also write for TensorBoard")


@dataclass
class Asked:
    plan: Any
    task: Any
    of_task: dict[str, Any]  # its options
    spec: Spec
    folder: Path
    tensorboard: bool


def read_plan(verb: str, argv: Sequence[str]) -> Asked:
    from longwave.train.plan import Plan

    plan_options = schema(Plan)
    name = chosen(argv, "--task", "language").replace("-", "_")
    work: Any = tasks.registry.get(name)
    preset = chosen(argv, "--model", work.preset)
    make = choose("model", preset, models.all_presets())
    shared = {o.name for o in plan_options} & {o.name for o in schema(make)}  # a longest context: that of training
    own_options = [o for o in schema(make) if o.name not in {*work.decides, *shared}]
    given = preset != work.preset
    own = Group("run", "what to train, on what", [
        Option("task", str, name, "the work to learn: longwave list tasks"),
        Option("model", str, preset, "the preset to build: longwave list models"),
        Option("out", str | None, None, "the folder of the run; None: runs/NAME"),
        Option("resume", str | None, None, "go on with the run in this folder"), BOARD,
    ])  # fmt: skip
    groups = [
        own,
        Group("task", f"the task {name}", schema(work)),
        Group("training", "how to train", plan_options, defaults=work.plan),
        Group("model", f"the preset {preset}", own_options, defaults={} if given else work.model),
    ]
    names = [name for name in chosen(argv, "--mixer", "").split(",") if name]
    groups += [mixer_group(each) for each in dict.fromkeys(names)]
    _, run, of_task, how, options, *of_mixers = parse(verb, argv, groups)
    plan = Plan(**how)
    task = tasks.create(name, of_task, context=plan.context, batch=plan.batch, seed=plan.seed)
    options |= {**task.fits(), **{option: how[option] for option in shared}}
    changes = dict(zip(dict.fromkeys(names), of_mixers, strict=True))
    if names:
        options["mixer"] = tuple(Spec(n, **changed_options(mixers.registry.get(n), changes[n])) for n in names)
    label = "-".join([*([] if name == "language" else [name]), preset, *dict.fromkeys(names)])
    folder = Path(run["out"] or f"runs/{label}")
    return Asked(plan, task, of_task, models.preset(preset, **options), folder, run["tensorboard"])
