"""The flags of a run, which several verbs share: a task and its options, a plan, a preset and its mixers."""

from collections.abc import Callable, Collection, Sequence
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


@dataclass
class Flags:
    """What was typed, and what follows from it."""

    task: str
    preset: str
    words: dict[str, Any]  # the verb's own, without a flag
    own: dict[str, Any]  # and with one
    of_task: dict[str, Any]
    plan: dict[str, Any]
    options: dict[str, Any]  # the preset's
    mixers: dict[str, Spec]  # by name, with the options that were given

    def make_task(self) -> Any:
        plan = self.plan
        return tasks.create(self.task, self.of_task, context=plan["context"], batch=plan["batch"], seed=plan["seed"])

    def spec(self, task: Any, names: Sequence[str] = (), **options: Any) -> Spec:
        """The preset for this task, of these mixers in turn."""
        shared = {name: self.plan[name] for name in _shared(self.preset)}
        turns = {"mixer": tuple(self.mixers[name] for name in names)} if names else {}
        return models.preset(self.preset, **{**self.options, **shared, **task.fits(), **turns, **options})


def read_flags(
    verb: str,
    argv: Sequence[str],
    own: Callable[[str, str], Sequence[Option]],  # from the names of task and preset
    names: Sequence[str],  # of mixers
    words: Sequence[Option] = (),
    without: Collection[str] = (),  # flags that this verb does not have
) -> Flags:
    from longwave.train.plan import Plan

    name = chosen(argv, "--task", "language").replace("-", "_")
    work: Any = tasks.registry.get(name)
    preset = chosen(argv, "--model", work.preset)
    make = choose("model", preset, models.all_presets())
    options = [o for o in schema(make) if o.name not in {*work.decides, *_shared(preset), *without}]
    plan = [o for o in schema(Plan) if o.name not in without]
    given = preset != work.preset
    groups = [
        Group("run", "what to train, on what", list(own(name, preset))),
        Group("task", f"the task {name}", schema(work)),
        Group("training", "how to train", plan, defaults=work.plan),
        Group("model", f"the preset {preset}", options, defaults={} if given else work.model),
        *[mixer_group(each) for each in dict.fromkeys(names)],
    ]
    typed, run, of_task, how, of_model, *of_mixers = parse(verb, argv, groups, words)
    specs = {
        each: Spec(each, **changed_options(mixers.registry.get(each), values))
        for each, values in zip(dict.fromkeys(names), of_mixers, strict=True)
    }
    return Flags(name, preset, typed, run, of_task, how, of_model, specs)


def read_plan(verb: str, argv: Sequence[str]) -> Asked:
    from longwave.train.plan import Plan

    def own(task: str, preset: str) -> list[Option]:
        return [
            Option("task", str, task, "the work to learn: longwave list tasks"),
            Option("model", str, preset, "the preset to build: longwave list models"),
            Option("out", str | None, None, "the folder of the run; None: runs/NAME"),
            Option("resume", str | None, None, "go on with the run in this folder"), BOARD,
        ]  # fmt: skip

    names = [name for name in chosen(argv, "--mixer", "").split(",") if name]
    flags = read_flags(verb, argv, own, names)
    plan = Plan(**flags.plan)
    task = flags.make_task()
    label = "-".join([*([] if flags.task == "language" else [flags.task]), flags.preset, *dict.fromkeys(names)])
    folder = Path(flags.own["out"] or f"runs/{label}")
    return Asked(plan, task, flags.of_task, flags.spec(task, names), folder, flags.own["tensorboard"])


def _shared(preset: str) -> set[str]:
    """Options of plan and preset at once: a longest context is that of training."""
    from longwave.train.plan import Plan

    return {o.name for o in schema(Plan)} & {o.name for o in schema(models.all_presets()[preset])}
