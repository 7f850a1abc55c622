"""A task = batches + loss + metrics: what training needs to know of the work to be done."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Task(Protocol):
    def check(self, model: Any) -> None:
        """Raise if this model cannot do the task."""

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """The batch of a step, a function of the step alone."""

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        """The summed loss of a batch, and how many targets it sums over."""

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        """Metrics on held-out data, "loss" among them; `quick` looks at a part of it."""

    def describe(self) -> dict[str, Any]:
        """Plain facts for the checkpoint: enough to build the task again, and to notice that its data changed."""
