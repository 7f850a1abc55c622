"""Everything a run needs to go on bitwise: weights, optimizer, random numbers, and how far it has come.

`last.safetensors` holds it all, `best.safetensors` only the weights. Each is replaced in one step, so a run that is
killed while writing keeps the one before.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.files import read_header, read_tensors
from longwave.models.model import Model
from longwave.models.store import BESIDE, TRAINING, merged, write_model


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0  # steps done
    seconds: float = 0.0  # spent on them
    best: float = float("inf")  # the lowest validation loss
    stale: int = 0  # validations since then
    plan: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    start: str | None = None  # the model that it began from


def save_last(folder: Path, model: Model, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    tensors = {TRAINING + "random": torch.get_rng_state()}
    for name, t in model.state_dict().items():  # what the merged weights do not tell: the base, the adapters
        if BESIDE in name:
            tensors[TRAINING + name] = t.detach().cpu().contiguous()
    for i, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state[parameter].items():
            tensors[f"{TRAINING}{i}/{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    write_model(folder / "last.safetensors", model, tensors, {"progress": json.dumps(asdict(progress))})


def save_best(folder: Path, model: Model) -> None:
    write_model(folder / "best.safetensors", model)


def read_progress(folder: Path) -> Progress:
    """How far the run in `folder` had come when it was last saved."""
    file = folder / "last.safetensors"
    if not file.exists():
        raise UserError(f"there is no run in {folder} to resume: no last.safetensors")
    try:
        progress = Progress(**json.loads(read_header(file, kind="model")["progress"]))
    except (KeyError, TypeError, json.JSONDecodeError) as problem:
        raise UserError(f"{file} is damaged: it does not say how far its run had come") from problem
    progress.plan = {name: tuple(v) if isinstance(v, list) else v for name, v in progress.plan.items()}
    return progress


def restore(folder: Path, model: Model, optimizer: torch.optim.Optimizer) -> None:
    """Put back what `save_last` wrote: into the model, the optimizer and the random number generator."""
    file = folder / "last.safetensors"
    tensors, _ = read_tensors(file, kind="model")
    training = {name.removeprefix(TRAINING): tensors.pop(name) for name in list(tensors) if name.startswith(TRAINING)}
    try:
        for name in merged(model).keys() - model.state_dict().keys():
            del tensors[name]  # it is merged: its base and its adapters are among the rest
        model.load_state_dict({**tensors, **{name: training.pop(name) for name in list(training) if BESIDE in name}})
        torch.set_rng_state(training.pop("random"))
        for i, parameter in enumerate(_parameters(optimizer)):
            names = [name for name in training if name.startswith(f"{i}/")]
            state = {name.partition("/")[2]: training.pop(name) for name in names}
            optimizer.state[parameter] = {key: _like(value, parameter) for key, value in state.items()}
    except (RuntimeError, KeyError) as problem:
        raise UserError(f"{file} is damaged: {str(problem).splitlines()[0]}") from problem
    if training:
        raise UserError(f"{file} is damaged: nobody knows its tensor {TRAINING}{next(iter(training))}")


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _like(value: Tensor, parameter: Tensor) -> Tensor:
    return value.to(parameter.device) if value.ndim else value
