"""How fast to learn, and how many sequences at a time: found by trying, in the first steps of a run.

rate    the rate rises from step to step, by the same factor, until the loss does (Smith 2017, section 3.3)
batch   twice as many sequences at a time, as long as memory lasts; and how much gradients differ from one sequence
        to another, which says how many are worth averaging (McCandlish et al. 2018, section 2.2 and appendix A.1)
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from longwave.errors import RunError
from longwave.train.loop import Trainer
from longwave.train.memory import held, peak
from longwave.train.plan import Plan

SMOOTH = 0.9  # of the loss: how much of the past stays
WORSE = 2.0  # times the least loss: there it has diverged
SAFE = 0.6  # of the memory that is free may be taken by the next trial


@dataclass(frozen=True)
class Rates:
    rates: list[float]
    losses: list[float]  # smoothed

    @property
    def best(self) -> float:
        """Where the loss falls the fastest, over the logarithm of the rate, before it is least."""
        least = self.losses.index(min(self.losses))
        if least < 2:
            return self.rates[0]
        width = max(1, least // 8)
        falls = [self.losses[i] - self.losses[i + width] for i in range(least - width + 1)]
        return self.rates[falls.index(max(falls)) + width // 2]


def find_rate(make: Callable[[Plan], Trainer], plan: Plan, *, low: float, high: float, steps: int) -> Rates:
    """`make` builds the trainer of a plan."""
    trainer = make(replace(plan, steps=steps, schedule="constant", warmup=0, lr=high))
    slower = [group["peak"] / high for group in trainer.optimizer.param_groups]
    rates: list[float] = []
    losses: list[float] = []
    mean = 0.0
    for i in range(steps):
        rate = low * (high / low) ** (i / max(1, steps - 1))
        for group, share in zip(trainer.optimizer.param_groups, slower, strict=True):
            group["peak"] = rate * share
        try:
            loss = trainer.step(i)["loss"]
        except RunError:  # not a number: as far as it goes
            break
        mean = SMOOTH * mean + (1 - SMOOTH) * loss
        rates.append(rate)
        losses.append(mean / (1 - SMOOTH ** (i + 1)))
        if loss > WORSE * min(losses):
            break
    if not rates:
        raise RunError(f"even a rate of {low:g} gives a loss that is not a number")
    return Rates(rates, losses)


@dataclass(frozen=True)
class Batch:
    sequences: int
    seconds: float  # a step
    memory: int  # bytes that the process held at most
    square: float  # of the norm of the mean gradient


def try_batches(make: Callable[[Plan], Trainer], plan: Plan, *, most: int) -> Iterator[Batch]:
    """Steps of 1, 2, 4 ... sequences, as long as the next is likely to fit into memory."""
    size = 1
    while size <= most:
        trainer = make(replace(plan, batch=size, accumulate=1, clip=0.0, steps=4))
        before = held()
        times: list[float] = []
        squares: list[float] = []

        def steps(trainer: Trainer = trainer, times: list[float] = times, squares: list[float] = squares) -> None:
            for i in range(3):
                began = time.perf_counter()
                squares.append(trainer.step(i)["grad_norm"] ** 2)
                times.append(time.perf_counter() - began)

        _, memory = peak(steps)
        yield Batch(size, min(times), before + memory, squares[0])  # the first: all sizes at the same weights
        if 2 * memory > SAFE * free():
            return
        size *= 2


def noise_scale(small: Batch, large: Batch) -> float:
    """Sequences beyond which averaging gradients gains little: their variance over the square of their mean."""
    a, b = small.sequences, large.sequences
    mean = (b * large.square - a * small.square) / (b - a)
    variance = (small.square - large.square) / (1 / a - 1 / b)
    return variance / mean if mean > 0 else math.inf


def free() -> int:
    """Bytes of memory that nobody needs."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0]
    file = Path("/proc/meminfo")
    if not file.exists():
        return 1 << 33
    line = next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) << 10
