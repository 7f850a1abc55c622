"""Associative recall: pairs of a key and a value, then keys in another order; say the value of each.

Attention looks back; a state of fixed size holds only so many pairs (Arora et al. 2024, "Zoology", section 3 and
appendix on multi-query recall; Olsson et al. 2022 for the induction that it measures).
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import TokenTask


class Recall(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 64, "batch": 64, "lr": 2e-3}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        pairs: int = 8,  # keys with their values, at the beginning
        symbols: int = 64,  # different keys, and as many values
        queries: int | None = None,  # how many of the keys are asked for; None: all
    ) -> None:
        super().__init__(context, batch, seed, pairs=pairs, symbols=symbols, queries=queries)
        if not (0 < pairs <= symbols and 3 * pairs <= context):
            raise UserError(f"{pairs} pairs take {3 * pairs} tokens and as many symbols: --context is {context}, "
                            f"there are {symbols} symbols")  # fmt: skip
        if queries is not None and not 0 < queries <= pairs:
            raise UserError(f"of {pairs} pairs one can ask for 1 to {pairs}, not for {queries}")
        self.pairs, self.symbols, self.queries = pairs, symbols, queries or pairs
        self.vocab = 2 * symbols + 1  # keys, values, and a blank

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        keys = random.random((rows, self.symbols)).argsort(1)[:, : self.pairs]
        values = self.symbols + random.integers(self.symbols, size=keys.shape)
        tokens = np.full((rows, self.context), 2 * self.symbols)
        tokens[:, : 2 * self.pairs : 2], tokens[:, 1 : 2 * self.pairs : 2] = keys, values
        order = random.random(keys.shape).argsort(1)[:, : self.queries]
        rest = self.context - 2 * self.pairs
        places = 2 * self.pairs + np.sort(random.random((rows, rest)).argsort(1)[:, : self.queries], 1)
        np.put_along_axis(tokens, places, np.take_along_axis(keys, order, 1), 1)
        target = np.full_like(tokens, IGNORE)
        np.put_along_axis(target, places, np.take_along_axis(values, order, 1), 1)
        return tokens, target
