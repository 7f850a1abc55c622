"""A task = batches + loss + metrics: what training needs to know of the work to be done.

A folder of files is the registry: `recall.py` defines the class `Recall`, which `longwave train --task recall` finds. A
task is made of `(context, batch, seed)` and of keyword-only options of its own, which are flags of the command line.
"""

from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor

from longwave.registry import Registry

registry = Registry("task", "longwave.tasks")


@runtime_checkable
class Task(Protocol):
    preset: ClassVar[str]  # the model that is trained unless another is asked for
    plan: ClassVar[dict[str, Any]]  # where its training should differ from the defaults
    model: ClassVar[dict[str, Any]]  # and its preset's options
    metric: ClassVar[str]  # which of its metrics ranks models
    better: ClassVar[Literal["higher", "lower"]]  # and which of two is the better one

    decides: ClassVar[tuple[str, ...]]  # options of the preset that follow from the task: how many tokens there are
    quick_share: float  # how much of a whole validation a quick one looks at

    def fits(self) -> dict[str, Any]:
        """Those options and their values."""

    def check(self, model: Any) -> None:
        """Raise if this model cannot do the task."""

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """The batch of a step, a function of the step alone."""

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        """The summed loss of a batch, and how many targets it sums over."""

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        """Metrics on held-out data, "loss" among them; `quick` looks at a part of it."""

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        """The same metrics on the data's test split, or on examples that neither training nor validation sees."""

    def describe(self) -> dict[str, Any]:
        """Plain facts for the checkpoint: its name, its options, and what tells whether its data changed."""


@runtime_checkable
class Keeps(Protocol):
    """A task whose model needs something beside its weights to be used: a tokenizer."""

    def keep(self, folder: Path) -> None:
        """Write that into the folder of a run."""


def create(name: str, options: dict[str, Any], *, context: int, batch: int, seed: int) -> Task:
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}  # JSON has lists alone
    return registry.create(name, context, batch, seed, **given)
