"""Tagging: a tag for every word of a sentence, such as its part of speech.

Sentences are read byte by byte, and a word's tag is said at its last byte; elsewhere nothing is asked (-100). So there
is no vocabulary, and no word is unknown.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.data import columns
from longwave.data.examples import Examples, padded, ragged
from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._classified import Classified

MADE, HELD_OUT = 4000, 300  # sentences of the language made here


class Tagging(Classified):
    plan: ClassVar[dict[str, Any]] = {"context": 512, "batch": 32, "lr": 3e-3, "warmup": 50}
    model: ClassVar[dict[str, Any]] = {"d_model": 96, "n_layers": 2, "norm": "layer", "bidirectional": True}
    vocab = 256

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str
        | None = None,  # a folder of train.txt, valid.txt, test.txt: a word and its tag a line; None: made here
    ) -> None:
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data)
        sizes = {"train": MADE, "valid": HELD_OUT, "test": HELD_OUT}
        found = columns.read(data) if data else {k: columns.made(n, i) for i, (k, n) in enumerate(sizes.items())}
        self.tags = sorted({tag for sentence in found["train"] for _, tag in sentence})
        self.n_classes = len(self.tags)
        train, valid, test = (self._examples(found[split], split) for split in sizes)
        whose = "a language made here (--data has another)" if data is None else data
        self.have(train, valid, test, f"{whose}: {len(train):,} sentences, tags {', '.join(self.tags)}")

    def _examples(self, sentences: list[columns.Sentence], split: str) -> Examples:
        """x is [bytes, 2]: a byte, and a tag or -100."""
        number = {tag: i for i, tag in enumerate(self.tags)}
        rows = []
        for sentence in sentences:
            text = b" ".join(word.encode() for word, _ in sentence)
            row = np.full((len(text), 2), IGNORE, np.int16)
            row[:, 0] = np.frombuffer(text, np.uint8)
            at = -1
            for word, tag in sentence:
                if tag not in number:
                    raise UserError(f"the tag {tag!r} of {word!r} ({split}) does not occur in training: there are "
                                    f"{', '.join(self.tags)}")  # fmt: skip
                at += len(word.encode())
                row[at, 1] = number[tag]
                at += 1
            rows.append(row)
        return ragged(rows, np.zeros(len(rows), np.int64))

    def fits(self) -> dict[str, Any]:
        return {**super().fits(), "head": "tag"}

    def check(self, model: Any) -> None:
        answer = model(torch.zeros(1, 2, dtype=torch.long), None)[0]
        if answer.shape != (1, 2, self.n_classes):
            raise UserError(f"tagging needs a model that chooses one of {self.n_classes} tags for a token, this one "
                            f"answers {list(answer.shape[1:])}")  # fmt: skip

    def show(self, examples: Examples, some: np.ndarray, random: np.random.Generator | None) -> tuple[Tensor, ...]:
        both, lengths = padded(examples.rows(some), self.context)
        return both[..., 0].long(), both[..., 1].long(), lengths

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        x, target, lengths = batch
        return model.loss(x, target, lengths, reduction="sum", **how), _asked(target, lengths).sum()

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        right = count = 0
        loss = 0.0
        for x, target, lengths in batches:
            asked = _asked(target, lengths)
            logits, tags = model(x, None, lengths)[0][asked].float(), target[asked]
            loss += float(F.cross_entropy(logits, tags, reduction="sum"))
            right += int((logits.argmax(-1) == tags).sum())
            count += len(tags)
        return {"loss": loss / max(1, count), "accuracy": right / max(1, count)}


def _asked(target: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(target.shape[1], device=target.device) < lengths[:, None]
    return real & (target != IGNORE)
