"""Models of several kinds, taught the same task under the same conditions: the same tuning, budget and seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from longwave.compare.curve import Point, mean, validations
from longwave.compare.engine import work
from longwave.compare.search import shorter
from longwave.compare.trial import Result, Trial
from longwave.spec import Spec
from longwave.train.plan import Plan

RATIO = 3.0  # between one learning rate that is tried and the next


@dataclass(frozen=True)
class Contest:
    models: dict[str, Spec]
    task: str
    options: dict[str, Any]  # the task's
    data: dict[str, Any]  # what the task says of them
    plan: Plan  # of a final trial
    metric: str
    better: str  # higher or lower
    seeds: int = 3
    rates: int = 3  # learning rates to choose from, around the plan's
    share: float = 0.2  # of the budget, for each of them

    def tuning(self, label: str) -> list[Trial]:
        """The same search for everybody."""
        if self.rates == 1:
            return []
        plan = replace(shorter(self.plan, self.share), patience=None)
        around = [self.plan.lr * RATIO ** (i - (self.rates - 1) / 2) for i in range(self.rates)]
        return [self._trial(label, replace(plan, lr=float(f"{lr:.3g}")), final=False) for lr in around]

    def finals(self, label: str, lr: float) -> list[Trial]:
        return [self._trial(label, replace(self.plan, lr=lr, seed=self.plan.seed + i)) for i in range(self.seeds)]

    def _trial(self, label: str, plan: Plan, final: bool = True) -> Trial:
        return Trial(label, self.models[label], self.task, self.options, plan, self.data, final)

    def run(self, home: Path, run_all: Callable[..., dict[str, Result]], **how: Any) -> "list[Entry]":
        entries = {label: Entry(label, spec, home) for label, spec in self.models.items()}

        def then(trial: Trial, result: Result) -> Sequence[Trial]:
            entry = entries[trial.label]
            if trial.final:
                entry.add(trial, result)
                return ()
            entry.tuned[trial.plan.lr] = result
            if len(entry.tuned) < self.rates:
                return ()
            lr = entry.best_rate()
            return () if lr is None else self.finals(trial.label, lr)

        searches = [trial for label in self.models for trial in self.tuning(label)]
        finals = [trial for label in self.models for trial in self.finals(label, self.plan.lr)]
        if searches:
            run_all(searches, home, then=then, more=len(finals), work_of_more=sum(map(work, finals)), **how)
        else:
            run_all(finals, home, then=then, **how)
        sign = -1 if self.better == "higher" else 1
        return sorted(entries.values(), key=lambda entry: (entry.failed, sign * entry.score(self.metric)))


@dataclass
class Entry:
    """What came of one kind of model."""

    label: str
    spec: Spec
    home: Path
    tuned: dict[float, Result] = field(default_factory=dict)  # by learning rate
    trials: list[tuple[Trial, Result]] = field(default_factory=list)

    def add(self, trial: Trial, result: Result) -> None:
        self.trials.append((trial, result))
        self.trials.sort(key=lambda each: each[0].plan.seed)

    def best_rate(self) -> float | None:
        """The one of the lowest loss in validation: smoother than what ranks models, and none of the test set's."""
        losses = {lr: result.metrics["loss"] for lr, result in self.tuned.items() if not result.error}
        return min(losses, key=losses.__getitem__, default=None)

    @property
    def results(self) -> list[Result]:
        return [result for _, result in self.trials if not result.error]

    @property
    def failed(self) -> bool:
        return not self.results

    @property
    def errors(self) -> list[str]:
        every = [*self.tuned.values(), *(result for _, result in self.trials)]
        return list(dict.fromkeys(result.error for result in every if result.error))

    @property
    def lr(self) -> float | None:
        return self.trials[0][0].plan.lr if self.trials else None

    def scores(self, metric: str) -> list[float]:
        return [result.metrics[metric] for result in self.results]

    def score(self, metric: str) -> float:
        return fmean(self.scores(metric)) if self.results else 0.0

    def mean(self, name: str) -> float | None:
        """Of a number in the results, over the seeds that have it."""
        values = [getattr(result, name) for result in self.results if getattr(result, name) is not None]
        return fmean(values) if values else None

    def curves(self) -> list[list[Point]]:
        return [
            validations(self.home / trial.name, trial.plan.batch * trial.plan.accumulate * trial.plan.context)
            for trial, result in self.trials if not result.error
        ]  # fmt: skip

    def curve(self, against: str, metric: str = "loss") -> tuple[list[float], list[float]]:
        """The mean over seeds of a metric in validation, against "tokens" or "seconds"."""
        return mean([([getattr(p, against) for p in curve], [p.metrics[metric] for p in curve])
                     for curve in self.curves()])  # fmt: skip

    def by_length(self, what: str) -> tuple[list[float], list[float]]:
        """The mean of "score" or "seconds" at every length."""
        found: dict[int, list[float]] = {}
        for result in self.results:
            for at in result.lengths:
                if getattr(at, what) is not None:
                    found.setdefault(at.tokens, []).append(getattr(at, what))
        places = sorted(found)
        return [float(n) for n in places], [fmean(found[n]) for n in places]


def spread(values: Sequence[float]) -> str:
    """mean ± standard deviation"""
    if not values:
        return "-"
    around = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{fmean(values):.4f}{around}"
