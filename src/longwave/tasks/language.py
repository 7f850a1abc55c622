"""Next-byte prediction on text, judged in bits per byte beside general-purpose compressors."""

import functools
import gzip
import lzma
import math
import os
import zlib
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longwave.data.corpus import standard_library
from longwave.data.loader import Windows
from longwave.data.text import Text, read_text
from longwave.data.tokens import Bytes
from longwave.errors import UserError
from longwave.models.language_model import LanguageModel
from longwave.ops.loss import IGNORE

QUICK = 64  # windows of a quick validation
AT_ONCE = 1 << 14  # tokens a validation batch
PIECES, PIECE = 64, 1 << 16  # how many bytes of a text are looked at to notice that it changed


class Language:
    preset: ClassVar[str] = "lm"
    plan: ClassVar[dict[str, Any]] = {}
    model: ClassVar[dict[str, Any]] = {}
    metric: ClassVar[str] = "bits_per_byte"
    better: ClassVar[Literal["higher", "lower"]] = "lower"
    decides: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a text file, folder or pattern; None: the source of Python's library
    ) -> None:
        self.data, self.context = data and os.path.abspath(os.path.expanduser(data)), context
        self.train, self.valid, self.unseen = standard_library() if data is None else read_text(data).split()
        whose = "the embedded corpus" if data is None else data
        for name, text in (("training", self.train), ("validation", self.valid), ("test", self.unseen)):
            if len(text) < context + 1:
                raise UserError(f"the {name} text of {whose} has {len(text)} bytes, too few for a context "
                                f"of {context}: give more text or a smaller --context")  # fmt: skip
        self.windows = Windows(self.train, context + 1, batch, seed)

    def fits(self) -> dict[str, Any]:
        return {}

    @property
    def quick_share(self) -> float:
        return min(1.0, QUICK * max(1, self.context // 2) / len(self.valid))

    def check(self, model: Any) -> None:
        if not isinstance(model, LanguageModel):
            raise UserError(
                f"next-byte prediction needs a language model, not a {type(model).__name__}: --model lm is one"
            )
        if not model.causal:
            raise UserError("a model that sees the whole sequence cannot guess the next byte; --task masked trains it")
        if len(model.out) < Bytes.size:
            raise UserError(f"the tokens of text are {Bytes.size} bytes, this model has {len(model.out)}")
        model(torch.zeros(1, 2, dtype=torch.long))  # a mixer that needs more than its input says so here

    def batch(self, step: int) -> tuple[Tensor, ...]:
        rows = torch.from_numpy(self.windows.at(step))
        return rows[:, :-1], rows[:, 1:]

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        tokens, target = batch
        return model.loss(tokens, target, reduction="sum", **how), torch.tensor(target.numel())

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        return self._judge(model, self.valid, QUICK if quick else None, **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return self._judge(model, self.unseen, None, **how)

    def _judge(self, model: Any, text: Text, windows: int | None, **how: Any) -> dict[str, float]:
        """Every byte of a text once, each from at least half a context (the first from what there is)."""
        device = next(model.parameters()).device
        half = max(1, self.context // 2)
        starts = np.arange(0, len(text) - 1, half)
        starts = starts[:: max(1, len(starts) // windows)] if windows else starts
        total, count = 0.0, 0
        batches = min(len(starts), max(1, len(starts) * self.context // AT_ONCE))
        for some in np.array_split(starts, batches):
            pairs = [self._window(text, int(start), half) for start in some]
            tokens, target = (torch.from_numpy(np.stack(each)).to(device) for each in zip(*pairs, strict=True))
            losses = model.loss(tokens, target, reduction="none", **how)
            total += float(losses.sum(dtype=torch.float64))
            count += int((target != IGNORE).sum())
        loss = total / max(1, count)
        return {"loss": loss, "bits_per_byte": loss / math.log(2)}

    def _window(self, text: Text, start: int, half: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets for the bytes start + 1 ... start + half, with what comes before them as context."""
        begin = max(0, start + half - self.context)
        piece = text[begin : start + half + 1].astype(np.int64)
        tokens, target = piece[:-1], piece[1:].copy()
        target[: start - begin] = IGNORE
        short = self.context - len(tokens)
        return np.pad(tokens, (0, short)), np.pad(target, (0, short), constant_values=IGNORE)

    def baselines(self) -> dict[str, float]:
        """Bits per byte that compressors need on the same validation bytes."""
        raw = self.valid[:].tobytes()
        packed = {"gzip -9": gzip.compress(raw, 9), "xz -9": lzma.compress(raw, preset=9)}
        return {name: 8 * len(data) / len(raw) for name, data in packed.items()}

    def describe(self) -> dict[str, Any]:
        size = len(self.train)
        return {
            "task": "language",
            "options": {"data": self.data},
            "bytes": size,
            "mark": _mark(self.train),
            "held_out": _mark(self.valid),
        }


def _mark(text: Text) -> int:
    """A checksum of the whole text, or of pieces all over it where it is long."""
    starts = range(0, len(text), max(PIECE, len(text) // PIECES))
    return functools.reduce(lambda mark, start: zlib.crc32(text[start : start + PIECE].tobytes(), mark), starts, 0)
