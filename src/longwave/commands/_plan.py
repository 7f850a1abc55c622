"""The flags of a run, which several verbs share: a task and its options, a plan, a preset and its mixers."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longwave import mixers, models, tasks
from longwave.commands._common import changed_options, mixer_group
from longwave.errors import UserError, choose
from longwave.flags import Group, chosen, parse
from longwave.registry import Option, schema
from longwave.spec import Spec

SAMPLE = "Naïve bytes,\n"  # of a text whose tokens tell whether they are its bytes
BOARD = Option("tensorboard", bool, False, "also write for TensorBoard")


@dataclass
class Asked:
    plan: Any
    task: Any
    of_task: dict[str, Any]  # its options
    spec: Spec
    folder: Path
    tensorboard: bool
    start: str | None = None  # whose weights to begin from

    def model(self) -> Any:
        """Built anew, or from the weights of another, with the head that the task needs."""
        if self.start is None:
            model = models.create(self.spec)
        else:
            model = _begun(self.start, self.task, self.spec)
        self.task.check(model)
        return model


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
    start: str = "",  # a model to begin from, which has a spec of its own
) -> Flags:
    from longwave.train.plan import Plan

    name = chosen(argv, "--task", "language").replace("-", "_")
    work: Any = tasks.registry.get(name)
    preset = chosen(argv, "--model", work.preset)
    make = choose("model", preset, models.all_presets())
    options = [o for o in schema(make) if o.name not in {*work.decides, *_shared(preset), *without}]
    plan = [o for o in schema(Plan) if o.name not in without]
    given = preset != work.preset
    if start:
        _refuse_a_spec(argv, Group("model", "", [Option("model", str, preset, ""), *options]), start)
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
            Option("from_", str | None, None, "begin from the weights of this run, folder or published model"),
            Option("out", str | None, None, "the folder of the run; None: runs/NAME"),
            Option("resume", str | None, None, "go on with the run in this folder"), BOARD,
        ]  # fmt: skip

    names = [name for name in chosen(argv, "--mixer", "").split(",") if name]
    start = chosen(argv, "--from", "")
    flags = read_flags(verb, argv, own, names, start=start)
    plan = Plan(**flags.plan)
    if plan.lora and not start:
        raise UserError("--lora puts adapters beside a trained model: --from says which")
    if start and flags.of_task.get("tokenizer", "") is None:
        flags.of_task["tokenizer"] = _tokenizer(start)
    task = flags.make_task()
    label = "-".join([*([] if flags.task == "language" else [flags.task]), flags.preset, *dict.fromkeys(names)])
    label = f"{Path(start).name}-{flags.task}" if start else label
    folder = Path(flags.own["out"] or f"runs/{label}")
    return Asked(plan, task, flags.of_task, flags.spec(task, names), folder, flags.own["tensorboard"], start or None)


def _refuse_a_spec(argv: Sequence[str], new: Group, start: str) -> None:
    for word in argv:
        flag = word.partition("=")[0].replace("_", "-")
        if flag in new.flags():
            raise UserError(f"{flag} is of a new model: --from {start} begins from one that is what it is")


def _tokenizer(start: str) -> str | None:
    """The tokenizer.json of a model in a folder."""
    from longwave.models.weights.hub import fetch

    file = fetch(start) / "tokenizer.json"
    return str(file) if file.is_file() else None


def _begun(start: str, task: Any, spec: Spec) -> Any:
    """The model at `start`; where the task asks for classes that it does not answer with, under the head of `spec`."""
    from longwave.data.tokens import tokens_of
    from longwave.models.adapt import with_head
    from longwave.models.weights import load

    model: Any = load(start)
    try:
        task.check(model)
    except UserError:
        head = spec.options.get("head")
        if "n_classes" not in task.decides or not isinstance(head, Spec):
            raise
        model = with_head(model, head)
    reads, name = task.fits().get("vocab"), task.describe()["task"]
    if reads and model.n_tokens < reads:
        raise UserError(f"the task {name} has {reads} tokens, the model at {start} {model.n_tokens}")
    own = "tokenizer" in task.describe()["options"]
    if model.n_tokens and not own and tokens_of(model.home).encode(SAMPLE) != list(SAMPLE.encode()):
        raise UserError(f"the model at {start} reads the pieces of its tokenizer, the task {name} shows it bytes")
    return model


def _shared(preset: str) -> set[str]:
    """Options of plan and preset at once: a longest context is that of training."""
    from longwave.train.plan import Plan

    return {o.name for o in schema(Plan)} & {o.name for o in schema(models.all_presets()[preset])}
