"""ListOps: the value of a nested expression of MIN, MAX, MED and SM over digits, read token by token.

The first task of the Long Range Arena (Tay et al. 2021, section 2.2.1), in its sizes: 500 to 2000 tokens, 10 deep, 10
arguments; 96,000 expressions for training, 2,000 for validation and 2,000 for test, made here. Chance is a tenth.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from longwave.data import listops
from longwave.data.examples import Examples, ragged
from longwave.data.made import kept
from longwave.errors import UserError
from longwave.tasks._classified import Classified

ROOTS = 20000  # trees grown at once; of LRA's sizes one in twelve fits
BARREN = 10  # rounds without any that fits


class ListOps(Classified):
    plan: ClassVar[dict[str, Any]] = {
        "context": 2000, "batch": 32, "lr": 3e-3, "decay": 0.05, "betas": (0.9, 0.999), "warmup": 300, "floor": 0.0,
        "minutes": 60.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 96, "n_layers": 4, "norm": "layer", "pool_norm": "after", "bidirectional": True,
        "tied_dropout": True, "dropout": 0.05,
    }  # fmt: skip
    vocab = listops.VOCAB
    n_classes = 10

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder with basic_train.tsv, basic_val.tsv, basic_test.tsv; None: made here
        examples: int = 96000,  # for training; as many as a forty-eighth of them for validation, and for test
        shortest: int = 500,  # an expression has more tokens than this
        longest: int = 2000,  # and fewer than this
        depth: int = 10,  # levels
        arguments: int = 10,  # of an operator at most
    ) -> None:
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data, examples=examples, shortest=shortest, longest=longest,
                         depth=depth, arguments=arguments)  # fmt: skip
        if data is not None:
            self._read(data)
            return
        if not (examples > 0 and depth > 1 and arguments > 1 and 0 <= shortest < longest - 1):
            raise UserError(f"expressions need 2 levels, 2 arguments and room between {shortest} and {longest} tokens")
        if context < longest - 1:
            raise UserError(f"expressions of fewer than {longest} tokens do not fit into a --context of {context}")
        self.bounds = shortest, longest, depth, arguments
        held = max(1, examples // 48)
        name = f"listops-{examples}-{shortest}-{longest}-{depth}-{arguments}"
        every = kept(name, examples + 2 * held, self._make)
        valid, test = every.take(np.arange(held)), every.take(np.arange(held, 2 * held))
        train = every.take(np.arange(2 * held, len(every)))
        self.have(train, valid, test, f"{len(train):,} generated expressions of {shortest} to {longest} tokens")

    def _read(self, data: str) -> None:
        parts = listops.read(data)
        longest = max(int(part.sizes.max()) for part in parts if part.sizes is not None)
        if longest > self.context:
            raise UserError(f"{data} has an expression of {longest} tokens: it does not fit into a --context of "
                            f"{self.context}")  # fmt: skip
        train, valid, test = parts
        self.have(train, valid, test, f"{data}: {len(train):,} expressions of up to {longest} tokens")

    def _make(self) -> Iterator[Examples]:
        """Expressions in pieces, each only once."""
        random, seen, barren = np.random.default_rng(0), set[bytes](), 0
        while barren < BARREN:
            texts, values = listops.expressions(random, ROOTS, *self.bounds)
            first = {text.tobytes(): i for i, text in reversed(list(enumerate(texts)))}
            new = sorted(i for text, i in first.items() if text not in seen)
            seen |= first.keys()
            barren = 0 if new else barren + 1
            if new:
                yield ragged([texts[i] for i in new], values[new])
        raise UserError(f"there are only {len(seen)} expressions of these sizes, too few")
