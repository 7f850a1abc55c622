"""One trial: a model learns a task by a plan, in a folder of its own.

gru-3f2a1c04/       named after what it is, with a digest of all of it
    trial.json      what it is
    log.jsonl, last.safetensors, best.safetensors    its training, which goes on from there where it was killed
    result.json     what came of it: a trial that has one is not done again
    output.txt      what its process said

python -m longwave.compare.trial FOLDER    does what trial.json says
"""

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from longwave import models, tasks
from longwave.allocator import tune_cpu
from longwave.compare.cost import Length, decoding, lengths
from longwave.errors import RunError, UserError
from longwave.files import write_whole
from longwave.models.store import load, make_folder
from longwave.spec import Spec
from longwave.train.checkpoint import read_progress
from longwave.train.loop import Trainer
from longwave.train.memory import most
from longwave.train.plan import Plan

STOPPED = 130  # a process that was asked to
NO_MATTER = ("save_every",)  # of the plan, to what comes out


@dataclass(frozen=True)
class Trial:
    label: str  # what people call it
    model: Spec
    task: str
    options: dict[str, Any]  # the task's
    plan: Plan
    data: dict[str, Any] = field(default_factory=dict)  # what the task says of its data, so that other data are noticed
    final: bool = True  # judged on the test set; False: only validated, to choose by
    measure: bool = True  # what is final, at other lengths and token by token, too

    @property
    def name(self) -> str:
        what = self.to_json()
        what["plan"] = {key: value for key, value in what["plan"].items() if key not in NO_MATTER}
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:10]
        return f"{re.sub('[^A-Za-z0-9_.]+', '-', self.label)}-{digest}"

    def make_task(self) -> Any:
        plan = self.plan
        return tasks.create(self.task, self.options, context=plan.context, batch=plan.batch, seed=plan.seed)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "model": self.model.to_json(), "plan": asdict(self.plan)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Trial":
        return Trial(**{**data, "model": Spec.from_json(data["model"]), "plan": _plan(data["plan"])})


@dataclass
class Result:
    error: str = ""  # why there is nothing else
    metrics: dict[str, float] = field(default_factory=dict)
    ended: str = "done"  # or what ended its training early
    parameters: int = 0
    steps: int = 0
    tokens: int = 0  # seen in training
    seconds: float = 0.0  # of training alone
    memory: int = 0  # bytes that its process held at most
    decode: float | None = None  # seconds a token
    state: int | None = None  # bytes of one sequence's, after one of the training length
    lengths: list[Length] = field(default_factory=list)

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Result":
        return Result(**{**data, "lengths": [Length(**each) for each in data.get("lengths", [])]})


def prepare(trial: Trial, home: Path) -> Path:
    """The trial's folder in `home`, made where it is not there."""
    folder = home / trial.name
    make_folder(folder)
    if not (folder / "trial.json").exists():
        write_json(folder / "trial.json", trial.to_json())
    return folder


def read_result(folder: Path) -> Result | None:
    file = folder / "result.json"
    return Result.from_json(read_json(file)) if file.exists() else None


def run(folder: Path) -> Result | None:
    """Do it, or go on with it; None where it was asked to stop."""
    with alone(folder):
        done = read_result(folder)
        if done is not None:
            return done
        try:
            result = _train(Trial.from_json(read_json(folder / "trial.json")), folder)
        except Exception as problem:  # whatever is wrong with this trial, the others go on
            known = isinstance(problem, UserError | RunError)
            result = Result(error=str(problem) if known else f"{type(problem).__name__}: {str(problem)[:300]}")
        if result is not None:
            write_json(folder / "result.json", asdict(result))
        return result


def _train(trial: Trial, folder: Path) -> Result | None:
    begun = (folder / "last.safetensors").exists()
    plan = _plan(read_progress(folder).plan) if begun else trial.plan  # which knows how many steps were to be done
    task = trial.make_task()
    torch.manual_seed(plan.seed)
    model = models.create(trial.model)
    task.check(model)
    trainer = Trainer(model, task, plan, folder)
    if begun:
        trainer.resume()
    outcome = trainer.run()
    if outcome.ended == "interrupted":
        return None
    progress = outcome.progress
    if plan.patience:  # its best was asked for, not its last
        trainer.model = model = load(folder / "best.safetensors").to(trainer.device)
    complete = outcome.ended == "done" and outcome.metrics  # of all the validation set, and of these weights
    metrics = outcome.metrics if complete else trainer.validate(quick=False)
    result = Result(
        metrics={**metrics, **trainer.test()} if trial.final else metrics, ended=outcome.ended,
        parameters=model.n_parameters, steps=progress.step,
        tokens=progress.step * plan.batch * plan.accumulate * plan.context, seconds=progress.seconds, memory=most(),
    )  # fmt: skip
    if trial.final and trial.measure:
        model.eval()
        result.decode, result.state = decoding(model, task)
        result.lengths = lengths(model, trial.task, trial.options, plan, task)
    return result


def _plan(data: dict[str, Any]) -> Plan:
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
    return Plan(**values)


def read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as problem:
        raise UserError(f"{file} is damaged: {problem}; without it, its trial is done again") from problem


def write_json(file: Path, data: Any) -> None:
    write_whole(file, lambda temporary: temporary.write_text(json.dumps(data, indent=1), encoding="utf-8"))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else is in this folder: one who was killed a moment ago may still be leaving it."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_with(parent: int) -> None:
    """Stop, saving everything, when the process is gone that wanted this trial."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def work_alone(folder: Path, threads: int) -> None:
    """What a process for one trial does."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for who wanted the trial, who will tell it
    with (folder / "output.txt").open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    torch.set_num_threads(threads)
    tune_cpu()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.exit(STOPPED if run(folder) is None else 0)


if __name__ == "__main__":
    work_alone(Path(sys.argv[1]), int(sys.argv[2]))
