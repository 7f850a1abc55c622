"""Widths at which models are as large, or cost as much, as one another."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longwave import models
from longwave.compare.flops import training_flops
from longwave.compare.trial import read_json, write_json
from longwave.errors import UserError
from longwave.spec import Spec
from longwave.train.loop import Trainer
from longwave.train.plan import Plan

WITHIN = 0.02  # of the aim
COARSE = 8  # widths are multiples of it where the feed-forward network can make up the rest
WIDEST = 1 << 14

Size = Callable[[Spec], float]
Build = Callable[[int], Spec]  # a model of any width


@dataclass(frozen=True)
class Fit:
    spec: Spec
    size: float
    aim: float

    @property
    def off(self) -> float:
        return self.size / self.aim - 1


def parameters(spec: Spec) -> float:
    with torch.device("meta"):
        return float(models.create(spec).n_parameters)


def flops(task: Any) -> Size:
    """Of a training step on one sequence."""
    return lambda spec: training_flops(models.create(spec), task)


def match(builds: Mapping[str, Build], width: int, size: Size) -> dict[str, Fit]:
    """All as large as one of them is at this width: the first of them by which all can be, within 2 %."""
    best: dict[str, Fit] = {}
    size = functools.cache(size)
    for reference in builds.values():
        aim = size(reference(width))
        found = {name: solve(build, width, aim, size) for name, build in builds.items()}
        if not best or _worst(found) < _worst(best):
            best = found
        if _worst(best) <= WITHIN:
            break
    return best


def solve(build: Build, width: int, aim: float, size: Size) -> Fit:
    """The model whose size is the nearest to `aim`: by its width, then by the width of its feed-forward networks."""
    sized = functools.partial(_size, build, size)
    low, high = COARSE, COARSE * max(1, width // COARSE)
    while high < WIDEST and (sized(high) or 0) < aim:
        low, high = high, 2 * high
    while high - low > COARSE:
        middle = (low + high) // 2 // COARSE * COARSE
        low, high = (low, middle) if (sized(middle) or aim) >= aim else (middle, high)
    if (d_hidden := _hidden(build(high))) is not None:
        fits = [_fitted(build(d), aim, size, d_hidden * d // high) for d in (low, high) if sized(d)]
    else:
        fits = [Fit(build(d), sized(d) or 0, aim) for d in range(max(1, low - COARSE), high + COARSE + 1) if sized(d)]
    if not fits:
        raise UserError(f"no model of a width near {high} can be made of {build(high)}")
    return min(fits, key=lambda fit: (abs(fit.off), abs(fit.spec.options["d_model"] - width)))


def _fitted(spec: Spec, aim: float, size: Size, hidden: int) -> Fit:
    """The size is linear in the hidden width."""
    at, next_to = (size(with_hidden(spec, d)) for d in (hidden, hidden + 8))
    better = max(1, round(hidden + 8 * (aim - at) / (next_to - at)))
    fits = [Fit(each, size(each), aim) for each in (with_hidden(spec, better), spec)]
    return min(fits, key=lambda fit: abs(fit.off))


def _size(build: Build, size: Size, width: int) -> float | None:
    try:
        return size(build(width))
    except UserError:  # heads that do not divide it
        return None


def _hidden(spec: Spec) -> int | None:
    """About how wide the feed-forward networks of a model are; None where it has none."""
    if spec.name == "ffn":
        return spec.options.get("d_hidden") or 0
    inside = [_hidden(each) for each in _specs(spec.options)]
    known = [each for each in inside if each is not None]
    return None if not known else max(known) or 3 * spec.options.get("d_model", 0)


def _specs(value: Any) -> list[Spec]:
    if isinstance(value, Spec):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [spec for part in parts for spec in _specs(part)]


def with_hidden(value: Any, hidden: int) -> Any:
    """The same with feed-forward networks of this hidden width."""
    if isinstance(value, tuple):
        return tuple(with_hidden(each, hidden) for each in value)
    if not isinstance(value, Spec):
        return value
    if value.name == "ffn":
        return value.but(d_hidden=hidden)
    return value.but(**{key: with_hidden(each, hidden) for key, each in value.options.items()})


def _worst(fits: dict[str, Fit]) -> float:
    return max(abs(fit.off) for fit in fits.values())


def possible(build: Build, width: int) -> bool:
    """Whether there is such a model at all; what is wrong with it, its own trial will say."""
    return _size(build, parameters, width) is not None


def same_steps(specs: dict[str, Spec], task: Any, plan: Plan, home: Path) -> Plan:
    """As many steps as the slowest model has time for: measured once for a folder, so that a second call goes on."""
    question = [plan.minutes, plan.batch, plan.accumulate, plan.context, *(s.to_json() for s in specs.values())]
    digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:10]
    file = home / f"steps-{digest}.json"
    if not file.exists():
        steps = []
        for spec in specs.values():
            try:
                model = models.create(spec)
                task.check(model)
                steps.append(Trainer(model, task, plan, home).steps)
            except UserError:
                continue  # its own trial will say what is wrong with it
        write_json(file, max(1, min(steps, default=1)))
    return replace(plan, steps=read_json(file))
