"""What a run will take, before it: a few of its steps are run, on shorter sequences where its own would take long."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from longwave.errors import UserError
from longwave.train.loop import Trainer
from longwave.train.memory import held, peak
from longwave.train.plan import Plan

SHORTEST = 256  # tokens that a trial is run on at least
PATIENCE = 8.0  # seconds that the next trial step may take
VALIDATIONS = 10  # of a run, all but the last quick


@dataclass(frozen=True)
class Estimate:
    parameters: int
    memory: int  # bytes that the process holds at most
    step: float  # seconds
    steps: int
    total: float  # seconds, validation included
    measured: int  # tokens of the longest trial


@dataclass(frozen=True)
class _Trial:
    tokens: int
    step: float
    memory: int
    quick: float  # seconds of a quick validation


def estimate(make: Callable[[Plan], Trainer], plan: Plan) -> Estimate:
    """`make` builds the trainer of a plan; it is called with shorter contexts first."""
    trials: list[_Trial] = []
    for tokens in _lengths(plan):
        try:
            trainer = make(replace(plan, context=tokens, steps=plan.steps or 1))
        except UserError:
            if tokens == plan.context:
                raise
            continue  # too short for the task
        trials.append(_try(trainer, tokens))
        if trials[-1].step * 2 ** (1 + len(trials) // 4) > PATIENCE:
            break
    last = trials[-1]
    step = last.step * (plan.context / last.tokens) ** _exponent(trials)
    quick = last.quick * plan.context / last.tokens if last.tokens < plan.context else last.quick
    steps = plan.steps or max(10, int(60 * plan.minutes / step))
    validating = quick * (VALIDATIONS - 1 + 1 / trainer.task.quick_share)
    return Estimate(
        parameters=trainer.model.n_parameters, memory=_memory(trials, plan.context), step=step, steps=steps,
        total=steps * step + validating, measured=last.tokens,
    )  # fmt: skip


def _lengths(plan: Plan) -> list[int]:
    """Doubling, from where a chunk is no longer the whole, to the plan's own."""
    shortest = max(SHORTEST, 2 * (plan.chunk or 0))
    doublings = max(0, math.ceil(math.log2(max(1, plan.context / shortest))))
    return [plan.context >> i for i in reversed(range(doublings + 1))]


def _try(trainer: Trainer, tokens: int) -> _Trial:
    before = held()

    def steps() -> list[float]:
        times = []
        for i in range(4):
            began = time.perf_counter()
            trainer.step(i)
            times.append(time.perf_counter() - began)
            if times[-1] > PATIENCE:
                break
        return times[1:] or times  # the first one also asks for memory

    times, memory = peak(steps)
    trainer.model.eval()
    began = time.perf_counter()
    with torch.no_grad():
        _, validating = peak(lambda: trainer.task.validate(trainer.model, quick=True, **trainer.chunk()))
    quick = time.perf_counter() - began
    return _Trial(tokens, median(times), before + max(memory, validating), quick)


def _exponent(trials: list[_Trial]) -> float:
    """With which power of the length the time grows."""
    if len(trials) < 2:
        return 1.0
    a, b = trials[-2:]
    return min(2.0, max(0.5, math.log(b.step / a.step) / math.log(b.tokens / a.tokens)))


def _memory(trials: list[_Trial], tokens: int) -> int:
    last = trials[-1]
    if last.tokens == tokens or len(trials) < 2:
        return last.memory * tokens // last.tokens
    each = (last.memory - trials[-2].memory) / (last.tokens - trials[-2].tokens)
    return int(last.memory + max(0.0, each) * (tokens - last.tokens))


def words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def lines(found: Estimate, plan: Any) -> list[tuple[str, str]]:
    tokens = plan.batch * plan.accumulate * plan.context
    return [
        ("parameters", f"{found.parameters:,}"),
        ("memory", f"{found.memory / 2**30:.2f} GiB, the process at most"),
        ("a step", f"{words(found.step)}, {tokens / found.step:,.0f} tokens/s"),
        (f"{found.steps:,} steps", f"{words(found.total)} with validation"),
    ]
