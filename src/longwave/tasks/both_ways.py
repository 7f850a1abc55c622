"""The byte after and the byte before each, guessed by two language models that share their ends: what ELMo is
pretrained on (Peters et al. 2018, section 3.1), on bytes.
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from longwave.data.loader import Windows
from longwave.errors import UserError
from longwave.models.bilm import BiLM
from longwave.tasks.masked import Masked

BYTES = 256


class BothWays(Masked):
    preset = "elmo"
    model: ClassVar[dict[str, Any]] = {"d_model": 128, "d_cell": 256}
    metric = "bits_per_byte"
    decides = ("vocab", "words", "guesses")

    def fits(self) -> dict[str, Any]:
        return {"vocab": BYTES, "words": False, "guesses": True}

    def check(self, model: Any) -> None:
        if not isinstance(model, BiLM) or model.n_tokens != BYTES or model.out is None:
            raise UserError(f"to guess {BYTES} bytes to both sides takes a model of both directions: elmo is one")

    def _hide(self, tokens: np.ndarray, key: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Nothing is hidden: neither direction sees what it guesses."""
        return torch.from_numpy(tokens), torch.from_numpy(tokens)

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        tokens, target = batch
        return model.loss(tokens, target, reduction="sum", **how), torch.tensor(2 * target[:, 1:].numel())

    def _guess(self, model: Any, windows: Windows, count: int, **how: Any) -> dict[str, float]:
        device = next(model.parameters()).device
        total, guessed = 0.0, 0
        for step in range(-(-min(count, windows.count) // windows.batch)):
            batch = tuple(t.to(device) for t in self._hide(windows.at(step), (0, step)))
            lost, n = self.loss(model, batch, **how)
            total, guessed = total + float(lost), guessed + int(n)
        return {"loss": total / guessed, "bits_per_byte": total / guessed / math.log(2)}
