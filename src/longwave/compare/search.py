"""Searching among the values of flags: all of them, some at random, or many of which the better ones get more time.

A search makes points, each a value for every flag; who searches makes trials of them.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from longwave.compare.trial import Result, Trial
from longwave.errors import UserError
from longwave.train.plan import Plan

ETA = 3  # one in so many goes on to the next rung, which is so many times as long
RUNGS = 3

Point = Mapping[str, str]  # what would be typed, by flag


@dataclass(frozen=True)
class Axis:
    """A flag and its values: a list, or all numbers between two."""

    flag: str
    values: tuple[str, ...] = ()
    ends: tuple[float, float] | None = None
    whole: bool = False

    @staticmethod
    def read(text: str) -> "Axis":
        """lr=1e-3,3e-3 or lr=1e-4..1e-2"""
        flag, _, right = text.partition("=")
        low, dots, high = right.partition("..")
        if not flag or not right:
            raise UserError(f"say what to try as FLAG=VALUE,VALUE or FLAG=LOW..HIGH, not {text!r}")
        if not dots:
            return Axis(flag.lstrip("-"), tuple(right.split(",")))
        try:
            ends = (float(low), float(high))
        except ValueError:
            raise UserError(f"{text!r} needs a number on each side of its dots") from None
        if not ends[0] < ends[1]:
            raise UserError(f"{text!r} must rise")
        return Axis(flag.lstrip("-"), ends=ends, whole=low.isdigit() and high.isdigit())

    @property
    def first(self) -> str:
        return self.values[0] if self.ends is None else f"{self.ends[0]:g}"

    def draw(self, random: np.random.Generator) -> str:
        """One value; between two positive ends, evenly over their logarithms."""
        if self.ends is None:
            return str(random.choice(self.values))
        low, high = self.ends
        share = random.random()
        value = math.exp(math.log(low) + share * math.log(high / low)) if low > 0 else low + share * (high - low)
        return str(round(value)) if self.whole else f"{value:.4g}"


def grid(axes: Sequence[Axis]) -> list[Point]:
    endless = [axis.flag for axis in axes if axis.ends]
    if endless:
        raise UserError(f"a grid needs a list of values for {', '.join(endless)}; --how random draws from a range")
    return [dict(zip([axis.flag for axis in axes], each, strict=True))
            for each in itertools.product(*(axis.values for axis in axes))]  # fmt: skip


def drawn(axes: Sequence[Axis], count: int, seed: int) -> list[Point]:
    """So many different points, fewer where there are no more."""
    random, found = np.random.default_rng(seed), dict[tuple[str, ...], Point]()
    for _ in range(20 * count):
        point = {axis.flag: axis.draw(random) for axis in axes}
        found.setdefault(tuple(point.values()), point)
        if len(found) == count:
            break
    return list(found.values())


@dataclass
class Halving:
    """Asynchronous successive halving (Li et al. 2020): whoever is among the best third of those that have ended a rung
    goes on to the next, which is three times as long. There it begins afresh, so that its learning rate falls as it
    should.
    """

    trials: Sequence[Trial]  # at full length
    loss: Callable[[Result], float]
    rung_of: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: which trial, on which rung
    ended: list[dict[int, Result]] = field(default_factory=lambda: [{} for _ in range(RUNGS)])

    def first(self) -> list[Trial]:
        return [self._on(which, 0) for which in range(len(self.trials))]

    def then(self, trial: Trial, result: Result) -> list[Trial]:
        which, rung = self.rung_of[trial.name]
        self.ended[rung][which] = result
        if rung + 1 == RUNGS:
            return []
        done = self._ranked(rung)
        begun = {i for i, r in self.rung_of.values() if r == rung + 1}
        return [self._on(i, rung + 1) for i in done[: len(done) // ETA] if i not in begun and not self._failed(rung, i)]

    def judge(self, done: Mapping[str, Result]) -> None:
        """All of them at full length, without rungs."""
        self.ended[-1] = {which: done[trial.name] for which, trial in enumerate(self.trials)}

    def order(self) -> list[tuple[int, Result]]:
        """Every trial once, where it went farthest: those on the highest rung first, and the best of them."""
        found: dict[int, Result] = {}
        for rung in reversed(range(RUNGS)):
            for which in self._ranked(rung):
                found.setdefault(which, self.ended[rung][which])
        return sorted(found.items(), key=lambda each: bool(each[1].error))

    def _ranked(self, rung: int) -> list[int]:
        done = self.ended[rung]
        return sorted(done, key=lambda i: math.inf if done[i].error else self.loss(done[i]))

    def _failed(self, rung: int, which: int) -> bool:
        return bool(self.ended[rung][which].error)

    def _on(self, which: int, rung: int) -> Trial:
        trial = self.trials[which]
        made = replace(trial, plan=shorter(trial.plan, ETA ** (rung + 1 - RUNGS)))
        self.rung_of[made.name] = which, rung
        return made


def shorter(plan: Plan, share: float) -> Plan:
    changes: dict[str, Any] = {"minutes": plan.minutes * share}
    if plan.steps:
        changes["steps"] = max(1, round(plan.steps * share))
    return replace(plan, **changes)
