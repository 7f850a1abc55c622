"""What a trained model costs to run: a decoded token, its state, and both score and time at other lengths."""

import inspect
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from longwave import tasks
from longwave.errors import UserError
from longwave.models.model import Model
from longwave.train.plan import Plan

TOKENS = 16  # decoded, to time one
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the training length
REPEATS = 3
LONGEST = 60.0  # seconds that all lengths may take
PATIENCE = 4.0  # seconds: what takes longer is not done at the next length


@dataclass
class Length:
    tokens: int
    score: float | None  # None: nothing can be asked there
    seconds: float  # of a training step on one sequence, without the optimizer's


@torch.no_grad()
def decoding(model: Model, task: Any) -> tuple[float | None, int | None]:
    """Seconds a token, and bytes of state, after one sequence; None for what cannot go on token by token."""
    if not model.causal:
        return None, None
    inputs, *others = (each[:1].to(_device(model)) for each in task.batch(0))
    try:
        if "source" in inspect.signature(model.init_state).parameters:
            state, inputs = model.init_state(inputs), others[0]
        else:
            state = model.init_state(1)
        _, state = model(inputs, state)
        token, times = inputs[:, -1:], []
        for _ in range(TOKENS):
            began = time.perf_counter()
            _, state = model(token, state)
            times.append(time.perf_counter() - began)
    except (NotImplementedError, UserError):
        return None, None
    return median(times), int(state.nbytes)


def lengths(model: Model, name: str, options: dict[str, Any], plan: Plan, task: Any) -> list[Length]:
    """The same model at other lengths, as far as the task has them; no score where the model refuses."""
    found: dict[int, Length] = {}
    until = time.monotonic() + LONGEST
    for share in SHARES:
        tokens = int(plan.context * share)
        if time.monotonic() > until or any(each.seconds > PATIENCE for each in found.values()):
            break
        try:
            other = (
                task if share == 1 else tasks.create(name, options, context=tokens, batch=plan.batch, seed=plan.seed)
            )
            if other.fits() != task.fits():
                continue
            batch = tuple(each[:1].to(_device(model)) for each in other.batch(0))
            steps = batch[0].shape[1 if batch[0].is_floating_point() else -1]
            if steps in found:  # the task's sequences are as long as they are
                continue
            seconds = _step(model, other, batch)
            found[steps] = Length(steps, _score(model, other), seconds)
        except (UserError, IndexError):
            continue
    return [found[tokens] for tokens in sorted(found)]


@torch.no_grad()
def _score(model: Model, task: Any) -> float:
    return float(task.validate(model, quick=True)[task.metric])


def _step(model: Model, task: Any, batch: tuple[Tensor, ...]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        task.loss(model, batch)[0].backward()
        times.append(time.perf_counter() - began)
        model.zero_grad()
        if sum(times) > PATIENCE:
            break
    return min(times)


def _device(model: Model) -> torch.device:
    return next(model.parameters()).device
