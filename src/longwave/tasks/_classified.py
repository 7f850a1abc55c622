"""What tasks share that ask for a class a sequence: their loss and metrics; and the ones that read their data."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.data.examples import Examples, Order, in_order, padded
from longwave.errors import UserError

QUICK = 1024  # examples of a quick validation
VALIDATION = 5000  # and of a full one at most, where data has no split of its own: a tenth of it


class Classes:
    """A batch is (x, classes), or (x, classes, lengths) where sequences differ in length."""

    preset: ClassVar[str] = "classifier"
    plan: ClassVar[dict[str, Any]] = {}
    model: ClassVar[dict[str, Any]] = {}
    metric: str = "accuracy"
    better: Literal["higher", "lower"] = "higher"
    decides: ClassVar[tuple[str, ...]] = ("vocab", "d_input", "n_classes", "head")
    vocab: int | None = None  # tokens, or
    d_input: int | None = None  # numbers a step
    n_classes: int

    def fits(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "d_input": self.d_input, "n_classes": self.n_classes, "head": "classify"}

    def check(self, model: Any) -> None:
        tiny = torch.zeros(1, 2, dtype=torch.long) if self.vocab else torch.zeros(1, 2, self.d_input or 0)
        try:
            answer = model(tiny, None)[0]
        except (RuntimeError, IndexError) as problem:
            reads = f"{self.vocab} tokens" if self.vocab else f"{self.d_input} numbers a step"
            raise UserError(f"this task needs a model that reads {reads}: {problem}") from problem
        if answer.shape != (1, self.n_classes):
            raise UserError(f"this task needs a model that chooses one of {self.n_classes} classes for a sequence, "
                            f"this one answers {list(answer.shape[1:])}")  # fmt: skip

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        x, target, *lengths = batch
        return model.loss(x, target, *lengths, reduction="sum", **how), torch.tensor(len(target))

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        right = count = 0
        loss = 0.0
        for x, target, *lengths in batches:
            logits = model(x, None, *lengths, **{k: v for k, v in how.items() if k == "dt"})[0].float()
            loss += float(F.cross_entropy(logits, target, reduction="sum"))
            right += int((logits.argmax(-1) == target).sum())
            count += len(target)
        return {"loss": loss / count, "accuracy": right / count}


class Classified(Classes):
    """Examples from data, in three parts; every epoch of training visits each of the first part once."""

    def __init__(self, context: int, batch: int, seed: int, **options: Any) -> None:
        self.context, self.size, self.seed, self.options = context, batch, seed, options

    def have(self, train: Examples, valid: Examples, unseen: Examples, source: str) -> None:
        """Take these; `source` says in words what they are."""
        self.train, self.valid, self.unseen, self.source = train, valid, unseen, source
        self.order = Order(len(train), self.size, self.seed, train.sizes)

    @property
    def quick_share(self) -> float:
        return min(1.0, QUICK / len(self.valid))

    def show(self, examples: Examples, some: np.ndarray, random: np.random.Generator | None) -> tuple[Tensor, ...]:
        """A batch of these examples; with `random` for training, which may vary them."""
        y = torch.from_numpy(examples.y[some])
        if examples.starts is None:
            return self.scale(torch.from_numpy(examples.x[some])), y
        x, lengths = padded(examples.rows(some), self.context)
        return self.scale(x), y, lengths

    def scale(self, x: Tensor) -> Tensor:
        """From how data is stored to what a model reads."""
        return x.long() if self.vocab else x.float()

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return self.show(self.train, self.order.at(step), np.random.default_rng((self.seed, step)))

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        return self.judge(model, self.batches(model, self.valid, QUICK if quick else None), **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return self.judge(model, self.batches(model, self.unseen), **how)

    def batches(self, model: Any, examples: Examples, most: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        device = next(model.parameters()).device
        if most is not None and most < len(examples):
            examples = examples.take(np.linspace(0, len(examples) - 1, most).astype(np.int64))
        for some in in_order(len(examples), 2 * self.size, examples.sizes):
            yield tuple(t.to(device) for t in self.show(examples, some, None))

    def describe(self) -> dict[str, Any]:
        return {
            "task": type(self).__module__.rpartition(".")[2],
            "options": self.options,
            "context": self.context,
            "source": self.source,
            "examples": [len(part) for part in (self.train, self.valid, self.unseen)],
            "mark": zlib.crc32(self.train.y.tobytes(), zlib.crc32(np.ascontiguousarray(self.train.x[:4096]).tobytes())),
        }


def held_out(count: int) -> int:
    return min(VALIDATION, count // 10)
