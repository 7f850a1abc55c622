"""What generated tasks share: endless batches drawn from a seed, and held-out ones that no training batch is."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._classified import Classes

HELD_OUT, TEST = (1 << 32) - 1, (1 << 32) - 2  # the seeds of validation and of test, whose steps count their batches
BATCHES, QUICK = 16, 4  # of a validation


class Generated:
    preset: ClassVar[str]
    metric: ClassVar[str]
    better: ClassVar[Literal["higher", "lower"]]
    plan: ClassVar[dict[str, Any]] = {}
    model: ClassVar[dict[str, Any]] = {"d_model": 64, "n_layers": 2}
    decides: ClassVar[tuple[str, ...]]
    quick_share = QUICK / BATCHES

    def __init__(self, context: int, batch: int, seed: int, **options: Any) -> None:
        self.context, self.size, self.seed, self.options = context, batch, seed, options

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        """So many examples: inputs and targets."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return self._drawn((self.seed, step))

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        """The metrics of these batches."""
        raise NotImplementedError

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        return self.judge(model, self._held_out(model, HELD_OUT, QUICK if quick else BATCHES), **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return self.judge(model, self._held_out(model, TEST, BATCHES), **how)

    def describe(self) -> dict[str, Any]:
        return {"task": type(self).__module__.rpartition(".")[2], "options": self.options, "context": self.context}

    def _held_out(self, model: Any, seed: int, count: int) -> Iterator[tuple[Tensor, ...]]:
        device = next(model.parameters()).device
        for i in range(count):
            yield tuple(t.to(device) for t in self._drawn((seed, i)))

    def _drawn(self, key: tuple[int, int]) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(a) for a in self.draw(np.random.default_rng(key), self.size))


class ClassTask(Classes, Generated):
    """A class a sequence, of tokens or of numbers."""

    model: ClassVar[dict[str, Any]] = {"d_model": 64, "n_layers": 2}

    def __init__(self, context: int, batch: int, seed: int, **options: Any) -> None:
        Generated.__init__(self, context, batch, seed, **options)


class NumberTask(Generated):
    """Numbers in, and at the end numbers to be said: judged by the mean squared error."""

    preset = "classifier"
    metric = "loss"
    better = "lower"
    decides = ("vocab", "d_input", "n_classes", "head")
    d_input: int
    n_answers: int

    def fits(self) -> dict[str, Any]:
        return {"vocab": None, "d_input": self.d_input, "n_classes": self.n_answers, "head": "regress"}

    def check(self, model: Any) -> None:
        model(torch.zeros(1, 2, self.d_input))

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        x, target = batch
        return model.loss(x, target, reduction="sum", **how), torch.tensor(target.numel())

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        """`share` is the loss in units of the targets' variance: 1 is to know nothing."""
        lost = count = 0.0
        power = []
        for x, target in batches:
            lost += float(model.loss(x, target, reduction="sum", **how))
            count += target.numel()
            power.append(target)
        return {"loss": lost / count, "share": lost / count / float(torch.cat(power).var())}


def smooth(random: np.random.Generator, rows: int, length: int, period: float) -> np.ndarray:
    """Random signals of variance 1 without waves faster than `period` steps."""
    waves = max(2, int(length / period))
    parts = random.normal(size=(2, rows, waves))
    spectrum = np.zeros((rows, length // 2 + 1), complex)
    spectrum[:, 1 : waves + 1] = parts[0] + 1j * parts[1]
    return (np.fft.irfft(spectrum, length) * length / np.sqrt(4 * waves)).astype(np.float32)


class TokenTask(Generated):
    """Tokens in, and at some of them a token to be said (elsewhere -100): judged by how many are said right."""

    preset = "lm"
    decides = ("vocab",)
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    vocab: int

    def fits(self) -> dict[str, Any]:
        return {"vocab": self.vocab}

    def check(self, model: Any) -> None:
        if not model.causal or len(model.out) < self.vocab:
            raise UserError(f"this task needs a causal model of {self.vocab} tokens")
        model(torch.zeros(1, 2, dtype=torch.long))  # a mixer that needs more than its input says so here

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        tokens, target = batch
        return model.loss(tokens, target, reduction="sum", **how), (target != IGNORE).sum()

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        right = count = 0
        loss = 0.0
        for tokens, target in batches:
            asked = target != IGNORE
            logits = model.hidden(tokens)[0][asked] @ model.out.T
            loss += float(torch.nn.functional.cross_entropy(logits.float(), target[asked], reduction="sum"))
            right += int((logits.argmax(-1) == target[asked]).sum())
            count += int(asked.sum())
        return {"loss": loss / count, "accuracy": right / count}
