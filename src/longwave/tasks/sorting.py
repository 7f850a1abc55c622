"""Sorting: numbers, then a mark; then say them in rising order, each having seen those already said.

A test of looking at everything at once, as in the networks that read sets (Vinyals et al. 2016, section 5.1).
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import TokenTask


class Sorting(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 32, "batch": 64, "lr": 2e-3}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        symbols: int = 64,  # different numbers
    ) -> None:
        super().__init__(context, batch, seed, symbols=symbols)
        if context < 2 or symbols < 2:
            raise UserError(f"sorting needs a --context of at least 2 and 2 symbols, got {context} and {symbols}")
        self.symbols, self.vocab = symbols, symbols + 1

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        count = self.context // 2
        numbers = random.integers(self.symbols, size=(rows, count))
        ordered = np.sort(numbers, 1)
        mark = np.full((rows, 1), self.symbols)
        tokens = np.concatenate([numbers, mark, ordered[:, :-1]], 1)
        return tokens, np.concatenate([np.full_like(numbers, IGNORE), ordered], 1)
