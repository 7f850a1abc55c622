"""Computing something again as it was: the random numbers and autocast of then, and the gradients through it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor


def random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)


def autocast_here(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    kind, on = torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)
    return lambda: torch.autocast(device.type, kind, enabled=on)


def gradients(
    outs: Sequence[tuple[Tensor | None, Tensor | None]], inputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Of every input, None where it has none."""
    there = [(o, g) for o, g in outs if o is not None and g is not None and o.requires_grad]
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    if not there or not wanted:
        return [None] * len(inputs)
    found = iter(torch.autograd.grad([o for o, _ in there], wanted, [g for _, g in there], allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]
