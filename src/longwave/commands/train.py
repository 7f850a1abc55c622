"""a model, on the embedded corpus or on --data"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longwave import models, tasks
from longwave.commands._common import print_metrics
from longwave.commands._plan import BOARD, Asked, read_plan
from longwave.errors import UserError
from longwave.flags import Group, chosen, parse
from longwave.registry import REQUIRED, Option, schema


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
    return _train_new(read_plan("train", argv))


def _train_new(asked: Asked) -> int:
    import torch

    from longwave.models.store import FILES, make_folder
    from longwave.models.weights import beside
    from longwave.train.loop import Trainer

    folder = asked.folder
    if any((folder / name).exists() for name in (*FILES, "log.jsonl")):
        raise UserError(f"{folder} already holds a run: --resume {folder} goes on with it, --out starts another")
    torch.manual_seed(asked.plan.seed)
    model = asked.model()
    trainer = Trainer(model, asked.task, asked.plan, folder)
    trainer.progress.start = asked.start
    make_folder(folder)
    if asked.start and model.home:
        beside.copy(model.home, folder)
        beside.keep_ends(model.home, folder)
    if isinstance(asked.task, tasks.Keeps):
        asked.task.keep(folder)
    return _run(trainer, asked.tensorboard)


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
    from longwave.train.memory import most

    folder, task = trainer.folder, trainer.task
    print(f"{trainer.model.n_parameters:,} parameters, {trainer.steps} steps on {trainer.device}"
          f"{' in bf16' if trainer.half else ''}; the run is in {folder}", file=sys.stderr)  # fmt: skip
    if trainer.adapters:
        print(trainer.adapters, file=sys.stderr)
    if "source" in task.describe():
        print(f"data: {task.describe()['source']}", file=sys.stderr)
    outcome = trainer.run(tensorboard=tensorboard)
    print(f"at most {most() / 2**30:.2f} GiB of memory", file=sys.stderr)
    again = f"longwave train --resume {shlex.quote(str(folder))}"
    if outcome.ended == "interrupted":
        print(f"stopped at step {outcome.progress.step}; everything is saved, go on with: {again}", file=sys.stderr)
        return 130
    if outcome.ended != "done":
        print(f"ended at step {outcome.progress.step}: {outcome.ended}", file=sys.stderr)
    print_metrics(outcome.metrics, task)
    if task.preset == "lm" and "bits_per_byte" in outcome.metrics:
        print(f"\ngenerate from it:  longwave generate {shlex.quote(str(folder))} 'def main('")
    if "bits_per_dimension" in outcome.metrics:
        print(f"\ndraw from it:      longwave generate {shlex.quote(str(folder))} --png drawn.png")
    if task.preset == "transformer":
        print(f"\ntranslate by it:   longwave translate {shlex.quote(str(folder))} 'forty-two'")
    print(f"resume it:         {again} --steps {2 * outcome.progress.step}")
    return 0
