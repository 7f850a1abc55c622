"""Masked bytes: guess hidden bytes from both sides, for mixers that see the whole sequence.

15 % of the bytes are chosen; of these 80 % become a mask token, 10 % another byte, 10 % stay (Devlin et al. 2019,
section 3.1).
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from longwave.data.loader import Windows
from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks.language import QUICK, Language

MASK = 256
CHOSEN, MASKED, CHANGED = 0.15, 0.8, 0.1
VALIDATION = 512  # windows of a full validation


class Masked(Language):
    """The text, windows and splits of next-byte prediction, with another question."""

    preset = "masked_lm"
    metric = "bits_per_masked_byte"
    decides: ClassVar[tuple[str, ...]] = ("vocab",)

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a text file, folder or pattern; None: the source of Python's library
    ) -> None:
        super().__init__(context, batch, seed, data=data)
        self.seed = seed
        self.windows = Windows(self.train, context, batch, seed)
        self.held_out = Windows(self.valid, context, 16, seed=0)
        self.tested = Windows(self.unseen, context, 16, seed=0)

    @property
    def quick_share(self) -> float:
        return min(1.0, QUICK / min(VALIDATION, self.held_out.count))

    def fits(self) -> dict[str, Any]:
        return {"vocab": MASK + 1}

    def check(self, model: Any) -> None:
        vocab = model.spec.options.get("vocab")
        if vocab != MASK + 1:
            raise UserError(f"masked bytes need a model of {MASK + 1} tokens (bytes and a mask), this one has {vocab}")
        answer, _ = model(torch.zeros(1, 2, dtype=torch.long))  # a mixer that needs more than its input says so here
        if getattr(answer, "shape", None) != (1, 2, vocab):
            raise UserError('masked bytes need a head that guesses each token: "masked", or "tag" of as many classes')

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return self._hide(self.windows.at(step), (self.seed, step))

    def _hide(self, tokens: np.ndarray, key: tuple[int, ...]) -> tuple[Tensor, ...]:
        draw = np.random.default_rng(key)
        chosen = draw.random(tokens.shape) < CHOSEN
        how = draw.random(tokens.shape)
        shown = np.where(chosen & (how < MASKED), MASK, tokens)
        changed = chosen & (how >= MASKED) & (how < MASKED + CHANGED)
        shown = np.where(changed, draw.integers(256, size=tokens.shape), shown)
        return torch.from_numpy(shown), torch.from_numpy(np.where(chosen, tokens, IGNORE))

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        tokens, target = batch
        return model.loss(tokens, target, reduction="sum", **how), (target != IGNORE).sum()

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        return self._guess(model, self.held_out, QUICK if quick else VALIDATION, **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return self._guess(model, self.tested, VALIDATION, **how)

    def _guess(self, model: Any, windows: Windows, count: int, **how: Any) -> dict[str, float]:
        device = next(model.parameters()).device
        steps = -(-min(count, windows.count) // windows.batch)
        total, count = 0.0, 0
        for step in range(steps):
            tokens, target = (t.to(device) for t in self._hide(windows.at(step), (0, step)))
            total += float(model.loss(tokens, target, reduction="sum", **how))
            count += int((target != IGNORE).sum())
        return {"loss": total / max(1, count), "bits_per_masked_byte": total / max(1, count) / math.log(2)}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "task": type(self).__module__.rpartition(".")[2]}
