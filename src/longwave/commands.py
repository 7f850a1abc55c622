"""What the verbs of the command line do. `list` reads files only; the rest imports torch when it needs it."""

import ast
import inspect
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from longwave import mixers, models
from longwave.errors import UserError, choose, nearest
from longwave.flags import Group, chosen, parse
from longwave.registry import REQUIRED, Option, load_file, schema
from longwave.spec import Spec

OPS = Path(__file__).parent / "ops"


def list_(argv: Sequence[str]) -> None:
    """Every mixer, model and op, with a line about each."""
    (words,) = parse("list", argv, words=[_word("what", "all", "mixers, models, ops or all")])
    kinds = {
        "mixers": lambda: {name: mixers.registry.summary(name) for name in mixers.names()},
        "models": lambda: {name: _first_line(make) for name, make in sorted(models.all_presets().items())},
        "ops": _op_summaries,
    }
    wanted = kinds if words["what"] == "all" else {words["what"]: choose("list", words["what"], kinds)}
    for kind, entries in wanted.items():
        print(kind)
        for name, summary in entries().items():
            print(f"  {name:18s} {summary}")


def show_(argv: Sequence[str]) -> None:
    """Everything about one name: docstring, options, source."""
    (words,) = parse("show", argv, words=[_word("name", REQUIRED, "a mixer, a model or an op")])
    name, presets = words["name"], models.all_presets()
    if name in mixers.names():
        cls = mixers.registry.get(name)
        print(f"mixer {name}\n\n{inspect.getdoc(inspect.getmodule(cls))}\n\noptions")
        _print_options(cls)
        print(f"\nsource ({inspect.getfile(cls)})\n\n{inspect.getsource(cls)}")
    elif name in presets:
        print(f"model {name}\n\n{inspect.getdoc(presets[name])}\n\noptions")
        _print_options(presets[name])
        print(f"\nsource ({inspect.getfile(presets[name])})\n\n{inspect.getsource(presets[name])}")
    elif name in _op_summaries():
        from longwave import ops
        from longwave.ops.dispatch import ALL

        op = ALL[name] if name in ALL else getattr(ops, name)
        definition = getattr(op, "reference", op)
        print(f"op {name}\n\n{inspect.getdoc(inspect.getmodule(definition))}\n\n{inspect.getsource(definition)}")
        print("forms: " + ", ".join(form.name for form in ALL[name].forms()) if name in ALL else "")
    else:
        raise UserError(f"there is no {name!r}: {nearest(name, [*mixers.names(), *presets, *_op_summaries()])}")


def check_(argv: Sequence[str]) -> int:
    """Try the laws on a registered mixer or on a file of one's own."""
    everything = "--all" in argv
    name = next((word for word in argv if not word.startswith("-")), "")
    registered = name in mixers.names()
    groups = [Group("what", "what to check", [Option("all", bool, False, "every registered mixer")])]
    if registered:
        groups.append(_mixer_group(name))
    words, _, *own = parse("check", argv, groups, [_word("name", "", "a mixer, or FILE.py, or FILE.py:Name")])
    if not (everything or words["name"]):
        raise UserError("check what? a mixer, FILE.py, FILE.py:Name, or --all")
    subjects = mixers.names() if everything else [words["name"]]
    kept = [_check_one(subject, own[0] if own else {}) for subject in subjects]
    return 0 if all(kept) else 1


def _check_one(name: str, options: dict[str, Any]) -> bool:
    from longwave.laws import Verdict, check

    def tell(verdict: Verdict) -> None:
        print(verdict, flush=True)

    changed = _changed(mixers.registry.get(name), options) if options else {}
    path, _, wanted = name.partition(".py")
    subject: Any = name
    if name.endswith(".py") or ".py:" in name:
        subject = _mixer_in(load_file(path + ".py"), wanted.lstrip(":"), path + ".py")
    elif changed:
        subject = lambda d: mixers.create(name, d, **changed)  # noqa: E731
    print(" ".join([name, *(f"{key}={value}" for key, value in changed.items())]))
    began = time.monotonic()
    report = check(subject, report=tell)
    print(f"  {'all declared laws kept' if report.ok else 'NOT a lawful mixer'} ({time.monotonic() - began:.1f} s)")
    return report.ok


def train_(argv: Sequence[str]) -> int:
    """Train a model; or go on with a run."""
    from longwave.train.plan import Plan

    resume = chosen(argv, "--resume", "")
    plan_options = schema(Plan)
    if resume:
        from longwave.train.checkpoint import read_progress

        stored = read_progress(Path(resume)).plan
        stored = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
        own = Group("run", "which run", [Option("resume", str, REQUIRED, "the run to go on with"), _BOARD])
        _, run, plan = parse(
            "train", argv, [own, Group("training", "changes to its plan", plan_options, defaults=stored)]
        )
        return _resume(Path(resume), Plan(**plan), run["tensorboard"])
    task = chosen(argv, "--task", "language")
    preset = chosen(argv, "--model", choose("task", task, {"language": "lm", "masked": "masked_lm"}))
    make = choose("model", preset, models.all_presets())
    own = Group("run", "what to train, on what", [
        Option("task", Literal["language", "masked"], "language", "guess the next byte, or hidden bytes"),
        Option("data", str | None, None, "a text file, folder or pattern; None: the source of Python's library"),
        Option("model", str, preset, "the preset to build: longwave list models"),
        Option("out", str | None, None, "the folder of the run; None: runs/NAME"),
        Option("resume", str | None, None, "go on with the run in this folder"), _BOARD,
    ])  # fmt: skip
    groups = [
        own,
        Group("training", "how to train", plan_options),
        Group("model", f"the preset {preset}", schema(make)),
    ]
    names = [name for name in chosen(argv, "--mixer", "").split(",") if name]
    groups += [_mixer_group(each) for each in dict.fromkeys(names)]
    _, run, plan, options, *of_mixers = parse("train", argv, groups)
    changes = dict(zip(dict.fromkeys(names), of_mixers, strict=True))
    if names:
        options["mixer"] = tuple(Spec(n, **_changed(mixers.registry.get(n), changes[n])) for n in names)
    name = "-".join([preset, *dict.fromkeys(names)])
    return _train_new(run, Plan(**plan), models.preset(preset, **options), Path(run["out"] or f"runs/{name}"))


def _mixer_group(name: str) -> Group:
    return Group(name, f"the mixer {name}", schema(mixers.registry.get(name)), prefixed=True)


_BOARD = Option("tensorboard", bool, False, "also write for TensorBoard")


def _train_new(run: dict[str, Any], plan: Any, spec: Spec, folder: Path) -> int:
    import torch

    from longwave.models.store import FILES, make_folder
    from longwave.train.loop import Trainer

    if any((folder / name).exists() for name in (*FILES, "log.jsonl")):
        raise UserError(f"{folder} already holds a run: --resume {folder} goes on with it, --out starts another")
    task = _make_task(run["task"], run["data"], plan)
    torch.manual_seed(plan.seed)
    model = models.create(spec)
    task.check(model)
    make_folder(folder)
    return _run(Trainer(model, task, plan, folder), run["tensorboard"])


def _resume(folder: Path, plan: Any, tensorboard: bool) -> int:
    from longwave.models.store import read_spec
    from longwave.train.checkpoint import read_progress
    from longwave.train.loop import Trainer

    about = read_progress(folder).task
    task = _make_task(about["task"], about["data"], plan)
    trainer = Trainer(models.create(read_spec(folder / "last.safetensors")), task, plan, folder)
    trainer.resume()
    print(f"going on with {folder} at step {trainer.progress.step}", file=sys.stderr)
    return _run(trainer, tensorboard)


def _run(trainer: Any, tensorboard: bool) -> int:
    folder, task = trainer.folder, trainer.task
    print(f"{trainer.model.n_parameters:,} parameters, {trainer.steps} steps on {trainer.device}"
          f"{' in bf16' if trainer.half else ''}; the run is in {folder}", file=sys.stderr)  # fmt: skip
    outcome = trainer.run(tensorboard=tensorboard)
    again = f"longwave train --resume {shlex.quote(str(folder))}"
    if outcome.ended == "interrupted":
        print(f"stopped at step {outcome.progress.step}; everything is saved, go on with: {again}", file=sys.stderr)
        return 130
    if outcome.ended != "done":
        print(f"ended at step {outcome.progress.step}: {outcome.ended}", file=sys.stderr)
    _print_metrics(outcome.metrics, task)
    print(f"\ngenerate from it:  longwave generate {shlex.quote(str(folder))} 'def main('")
    print(f"resume it:         {again} --steps {2 * outcome.progress.step}")
    return 0


def generate_(argv: Sequence[str]) -> None:
    """Continue a text, shown as it comes."""
    from longwave.generate.loop import stream
    from longwave.generate.sampling import Sampling

    flags = [
        Option("max_tokens", int, 400, "stop after so many tokens"),
        Option("seed", int | None, None, "the same seed gives the same text; None: another each time"),
        Option("stop", tuple[str, ...], (), "end before any of these texts"),
    ]
    groups = [Group("text", "what to generate", flags), Group("sampling", "how to choose a token", schema(Sampling))]
    positional = [_word("run", REQUIRED, "a run, or a folder that holds a model"),
                  _word("prompt", "", "the text to continue; - reads it from standard input")]  # fmt: skip
    words, how, sampling = parse("generate", argv, groups, positional)
    from longwave.models.language_model import LanguageModel
    from longwave.models.store import load

    chosen_how = Sampling(**sampling)
    model = load(words["run"])
    if not isinstance(model, LanguageModel) or not model.causal:
        raise UserError(f"{words['run']} holds a {type(model).__name__} that does not generate")
    prompt = sys.stdin.read() if words["prompt"] == "-" else words["prompt"]
    print(prompt, end="", flush=True)
    pieces = stream(
        model, [prompt], max_tokens=how["max_tokens"], sampling=chosen_how, seed=how["seed"], stop=how["stop"]
    )
    for _, piece in pieces:
        print(piece, end="", flush=True)
    print()


def eval_(argv: Sequence[str]) -> None:
    """Metrics of a trained model, on the held-out part of its own data or of other data."""
    flags = [
        Option("data", str | None, None, "other text: a file, a folder or a pattern"),
        Option("context", int | None, None, "tokens that a prediction may see; None: as in training"),
        Option("json", bool, False, "print JSON"),
    ]
    words, how = parse("eval", argv, [Group("judge", "on what", flags)], [_word("run", REQUIRED, "a run of training")])
    import torch

    from longwave.models.store import load
    from longwave.train.checkpoint import read_progress
    from longwave.train.plan import Plan

    about = read_progress(Path(words["run"]))
    plan = Plan(**{**about.plan, "context": how["context"] or about.plan["context"]})
    task = _make_task(about.task["task"], how["data"] or about.task["data"], plan)
    model = load(words["run"]).eval()
    with torch.no_grad():
        metrics = task.validate(model)
    if how["json"]:
        print(json.dumps({**metrics, "baselines": task.baselines()}))
    else:
        _print_metrics(metrics, task)


def doctor_(argv: Sequence[str]) -> None:
    parse("doctor", argv)
    from longwave.doctor import doctor

    doctor()


def _make_task(name: str, data: str | None, plan: Any) -> Any:
    from longwave.tasks.language import Language
    from longwave.tasks.masked import Masked

    made = {"language": Language, "masked": Masked}[name]
    return made(data, context=plan.context, batch=plan.batch, seed=plan.seed)


def _print_metrics(metrics: dict[str, float], task: Any) -> None:
    print("\nvalidation")
    for name, value in metrics.items():
        print(f"  {name.replace('_', ' '):22s} {value:.4f}")
    if "bits_per_byte" in metrics:
        for name, value in task.baselines().items():
            print(f"  {name + ' needs':22s} {value:.4f}  bits per byte on the same text")


def _print_options(make: Any) -> None:
    for o in schema(make):
        default = "required" if o.default is REQUIRED else f"= {o.default!r}"
        print(f"  {o.name} {default}  {o.help}")


def _word(name: str, default: Any, text: str) -> Option:
    return Option(name, str, default, text)


def _changed(make: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The options that differ from their defaults."""
    return {o.name: values[o.name] for o in schema(make) if values[o.name] != o.default}


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _op_summaries() -> dict[str, str]:
    """The public names of `longwave.ops`, each with the first line of its file, read without importing torch."""
    listed = ast.parse((OPS / "__init__.py").read_text(encoding="utf-8"))
    homes = {
        alias.name: (node.module or "").rpartition(".")[2]
        for node in listed.body
        if isinstance(node, ast.ImportFrom) and not (node.module or "").endswith("dispatch")
        for alias in node.names
    }
    summaries = {}
    for name, home in sorted(homes.items()):
        tree = ast.parse((OPS / f"{home}.py").read_text(encoding="utf-8"))
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
        if found is not None:
            summaries[name] = ((ast.get_docstring(found) or "") + "\n").partition("\n")[0]
    return summaries


def _mixer_in(module: Any, name: str, file: str) -> Any:
    """The mixer called `name` in a user's module, or its only one."""
    from longwave.mixer import Mixer

    if name:
        if not hasattr(module, name):
            raise UserError(f"{file} has no {name!r}: {nearest(name, vars(module))}")
        return getattr(module, name)
    own = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Mixer) and c.__module__ == module.__name__
    ]
    if len(own) != 1:
        names = ", ".join(c.__name__ for c in own) or "none"
        raise UserError(f"{file} defines {len(own)} mixers ({names}): say which, as {file}:Name")
    return own[0]
