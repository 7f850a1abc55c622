"""What BERT is pretrained on: two pieces of text with some bytes hidden; guess those, and whether the pieces follow.

    CLS  first piece  SEP  second piece  SEP

The second piece follows the first in half of the rows (label 0), in the others it comes from elsewhere (label 1). Bytes
are hidden as in `masked`, the three marks never (Devlin et al. 2019, section 3.1 and appendix A.2).
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.data.loader import Windows
from longwave.errors import UserError
from longwave.models.heads import Pretrain
from longwave.ops.loss import IGNORE
from longwave.tasks.masked import MASK, Masked

CLS, SEP = MASK + 1, MASK + 2
MARKS = 3  # in a row


class SentencePairs(Masked):
    preset = "bert"
    model: ClassVar[dict[str, Any]] = {"head": "pretrain", "d_model": 128, "n_layers": 2, "n_heads": 4}
    decides = ("vocab",)

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a text file, folder or pattern; None: the source of Python's library
    ) -> None:
        if context < MARKS + 2:
            raise UserError(f"two pieces of text and {MARKS} marks do not fit into a --context of {context}")
        super().__init__(context, batch, seed, data=data)
        self.windows = Windows(self.train, context - MARKS, batch, seed)
        self.held_out = Windows(self.valid, context - MARKS, 16, seed=0)
        self.tested = Windows(self.unseen, context - MARKS, 16, seed=0)

    def fits(self) -> dict[str, Any]:
        return {"vocab": SEP + 1}

    def check(self, model: Any) -> None:
        if not isinstance(getattr(model, "head", None), Pretrain) or model.embed.num_embeddings != SEP + 1:
            raise UserError(
                f'pairs of sentences need a model of {SEP + 1} tokens with the head "pretrain": bert is one'
            )

    def _hide(self, tokens: np.ndarray, key: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Tokens, of which piece they are, what was hidden, and whether the second piece is another's."""
        draw = np.random.default_rng((*key, 1))
        rows, room = tokens.shape
        cut = room // 2
        strange = draw.random(rows) < 0.5
        strange &= rows > 1  # of one row no piece is another's
        second = np.where(strange[:, None], np.roll(tokens, 1, 0)[:, cut:], tokens[:, cut:])
        shown, hidden = super()._hide(np.concatenate([tokens[:, :cut], second], 1), key)
        first, rest = shown[:, :cut], shown[:, cut:]
        cls, sep = (torch.full((rows, 1), mark) for mark in (CLS, SEP))
        gap = torch.full((rows, 1), IGNORE)
        types = torch.cat([torch.zeros(rows, cut + 2), torch.ones(rows, room - cut + 1)], 1).long()
        return (
            torch.cat([cls, first, sep, rest, sep], 1), types,
            torch.cat([gap, hidden[:, :cut], gap, hidden[:, cut:], gap], 1), torch.from_numpy(strange).long(),
        )  # fmt: skip

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        tokens, types, hidden, strange = batch
        lost = model.loss(tokens, (hidden, strange), types=types, reduction="sum", **how)
        return lost, (hidden != IGNORE).sum()

    def _guess(self, model: Any, windows: Windows, count: int, **how: Any) -> dict[str, float]:
        device = next(model.parameters()).device
        steps = -(-min(count, windows.count) // windows.batch)
        bytes_lost, pairs_lost, right, hidden_count, rows = 0.0, 0.0, 0, 0, 0
        for step in range(steps):
            tokens, types, hidden, strange = (t.to(device) for t in self._hide(windows.at(step), (0, step)))
            (guesses, pair), _ = model(tokens, types=types)
            bytes_lost += float(F.cross_entropy(guesses.mT.float(), hidden, ignore_index=IGNORE, reduction="sum"))
            pairs_lost += float(F.cross_entropy(pair.float(), strange, reduction="sum"))
            right += int((pair.argmax(-1) == strange).sum())
            hidden_count += int((hidden != IGNORE).sum())
            rows += len(tokens)
        a_byte, a_pair = bytes_lost / max(1, hidden_count), pairs_lost / max(1, rows)
        return {"loss": a_byte + a_pair, "bits_per_masked_byte": a_byte / math.log(2), "pairs_told_apart": right / rows}
