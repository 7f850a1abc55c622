"""Timings that can be trusted on a noisy machine: candidates take turns in one process; what counts is their ratio."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor

DRAWS = 2000  # resamples of an interval


@dataclass(frozen=True)
class Ratio:
    """How many times as long as ours the other takes: of the medians, with a 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f}x [{self.low:.1f}, {self.high:.1f}]"


def race(candidates: Mapping[str, Callable[[], object]], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of calls, by name, in turns until `rounds`, or `seconds` are over.

    Each timed call follows an untimed one: what another left in the caches and to the allocator is not its cost.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    began = time.perf_counter()
    for i in range(rounds):
        for name, run in candidates.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
        if i >= 2 and time.perf_counter() - began > seconds:
            break
    return times


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    draw = np.random.default_rng(0)
    medians = [np.median(draw.choice(np.asarray(times), (DRAWS, len(times))), axis=1) for times in (theirs, ours)]
    low, high = np.percentile(medians[0] / medians[1], [2.5, 97.5])
    return Ratio(float(np.median(theirs) / np.median(ours)), float(low), float(high))


def forward(f: Callable[..., object], inputs: Sequence[object]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            f(*inputs)

    return run


def forward_backward(f: Callable[..., object], inputs: Sequence[object]) -> Callable[[], None]:
    """All gradients, from a random one of the output."""
    inputs = [wanting(x) for x in inputs]
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with torch.no_grad():
        grad = torch.randn_like(_first(f(*inputs)))

    def run() -> None:
        torch.autograd.grad(_first(f(*inputs)), wanted, grad, allow_unused=True)

    return run


def wanting(x: object) -> object:
    floating = isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
    return x.detach().requires_grad_() if isinstance(x, Tensor) and floating else x


def _first(out: object) -> Tensor:
    found = [t for t in pytree.tree_leaves(out) if isinstance(t, Tensor)]
    return found[0]
