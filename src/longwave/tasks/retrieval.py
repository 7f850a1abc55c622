"""Retrieval: do two documents belong together? Each is read byte by byte, alone; then their vectors are compared.

The third task of the Long Range Arena (Tay et al. 2021, section 2.2.3): does one paper of the ACL Anthology Network
(Radev et al. 2013) cite the other; 4000 bytes of each. Chance is one half.
"""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from longwave.data import documents
from longwave.data.examples import Examples, padded, ragged
from longwave.errors import UserError
from longwave.tasks._classified import Classified

MADE, HELD_OUT = 2000, 200  # pairs made here


class Retrieval(Classified):
    plan: ClassVar[dict[str, Any]] = {"context": 4000, "batch": 32, "lr": 2e-3, "warmup": 200, "minutes": 60.0}
    model: ClassVar[dict[str, Any]] = {"d_model": 96, "n_layers": 4, "norm": "layer", "pool_norm": "after"}
    vocab, n_classes = 256, 2

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder with new_aan_pairs.train.tsv, .eval.tsv and .test.tsv; None: made here
    ) -> None:
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data)
        if data:
            parts = documents.read(data, context)
        else:
            parts = [documents.made(n, context, i) for i, n in enumerate((MADE, HELD_OUT, HELD_OUT))]
        texts = [np.frombuffer(text or b" ", np.uint8) for part in parts for a, b, _ in part for text in (a, b)]
        self.texts = ragged(texts, np.zeros(len(texts), np.int64))
        ends = np.cumsum([0, *map(len, parts)])
        train, valid, test = (
            Examples(np.arange(a, b), np.array([label for *_, label in part], np.int64))
            for a, b, part in zip(ends[:-1], ends[1:], parts, strict=True)
        )
        whose = "documents made here (--data has AAN's)" if data is None else data
        self.have(train, valid, test, f"{whose}: {len(train):,} pairs")

    def fits(self) -> dict[str, Any]:
        return {**super().fits(), "head": "pair"}

    def check(self, model: Any) -> None:
        answer = model(torch.zeros(1, 2, 2, dtype=torch.long), None)[0]
        if answer.shape != (1, 2):
            raise UserError("retrieval needs a model that compares two sequences: --model classifier is one")

    def show(self, examples: Examples, some: np.ndarray, random: np.random.Generator | None) -> tuple[Tensor, ...]:
        """x[B, 2, T], classes, lengths [B, 2]"""
        both = (2 * examples.x[some][:, None] + np.arange(2)).ravel()
        x, lengths = padded(self.texts.rows(both), self.context)
        return x.long().unflatten(0, (-1, 2)), torch.from_numpy(examples.y[some]), lengths.view(-1, 2)

    def describe(self) -> dict[str, Any]:
        marked = super().describe()
        return {**marked, "bytes": len(self.texts.x), "sum": int(self.texts.x.sum(dtype=np.int64))}
