"""a model, on the embedded corpus or on --data"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longwave import mixers, models, tasks
from longwave.commands._common import changed_options, mixer_group, print_metrics
from longwave.errors import UserError, choose
from longwave.flags import Group, chosen, parse
from longwave.registry import REQUIRED, Option, schema
from longwave.spec import Spec

BOARD = Option("tensorboard", bool, False, "also write for TensorBoard")


def run(argv: Sequence[str]) -> int:
    """Train a model; or go on with a run."""
    from longwave.train.plan import Plan

    resume = chosen(argv, "--resume", "")
    plan_options = schema(Plan)
    if resume:
        from longwave.train.checkpoint import read_progress

        stored = read_progress(Path(resume)).plan
        own = Group("run", "which run", [Option("resume", str, REQUIRED, "the run to go on with"), BOARD])
        _, run, changed = parse(
            "train", argv, [own, Group("training", "changes to its plan", plan_options, defaults=stored)]
        )
        return _resume(Path(resume), Plan(**changed), run["tensorboard"])
    name = chosen(argv, "--task", "language").replace("-", "_")
    work: Any = tasks.registry.get(name)
    preset = chosen(argv, "--model", work.preset)
    make = choose("model", preset, models.all_presets())
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
        Group("model", f"the preset {preset}", [o for o in schema(make) if o.name not in work.decides]),
    ]
    names = [name for name in chosen(argv, "--mixer", "").split(",") if name]
    groups += [mixer_group(each) for each in dict.fromkeys(names)]
    _, run, of_task, how, options, *of_mixers = parse("train", argv, groups)
    plan = Plan(**how)
    task = tasks.create(name, of_task, context=plan.context, batch=plan.batch, seed=plan.seed)
    options |= task.fits()
    changes = dict(zip(dict.fromkeys(names), of_mixers, strict=True))
    if names:
        options["mixer"] = tuple(Spec(n, **changed_options(mixers.registry.get(n), changes[n])) for n in names)
    label = "-".join([*([] if name == "language" else [name]), preset, *dict.fromkeys(names)])
    return _train_new(run, plan, task, models.preset(preset, **options), Path(run["out"] or f"runs/{label}"))


def _train_new(run: dict[str, Any], plan: Any, task: Any, spec: Spec, folder: Path) -> int:
    import torch

    from longwave.models.store import FILES, make_folder
    from longwave.train.loop import Trainer

    if any((folder / name).exists() for name in (*FILES, "log.jsonl")):
        raise UserError(f"{folder} already holds a run: --resume {folder} goes on with it, --out starts another")
    torch.manual_seed(plan.seed)
    model = models.create(spec)
    task.check(model)
    trainer = Trainer(model, task, plan, folder)
    make_folder(folder)
    return _run(trainer, run["tensorboard"])


def _resume(folder: Path, plan: Any, tensorboard: bool) -> int:
    from longwave.models.store import read_spec
    from longwave.train.checkpoint import read_progress
    from longwave.train.loop import Trainer

    about = read_progress(folder).task
    task = tasks.create(about["task"], about["options"], context=plan.context, batch=plan.batch, seed=plan.seed)
    trainer = Trainer(models.create(read_spec(folder / "last.safetensors")), task, plan, folder)
    trainer.resume()
    if trainer.progress.step >= trainer.steps:
        raise UserError(f"the run in {folder} is complete at step {trainer.progress.step}; --steps makes it longer")
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
    print_metrics(outcome.metrics, task)
    if task.preset == "lm" and "bits_per_byte" in outcome.metrics:
        print(f"\ngenerate from it:  longwave generate {shlex.quote(str(folder))} 'def main('")
    print(f"resume it:         {again} --steps {2 * outcome.progress.step}")
    return 0
