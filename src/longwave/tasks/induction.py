"""Induction heads: a special token stands once among random ones; when it comes again, say what followed it.

The least in-context learning there is (Olsson et al. 2022; as a task, Fu et al. 2023, section 3.1, and Gu and Dao 2023,
section 4.1.2). Chance is 1 / symbols.
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import TokenTask


class Induction(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 128, "batch": 32, "lr": 2e-3}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        symbols: int = 16,  # different random tokens
    ) -> None:
        super().__init__(context, batch, seed, symbols=symbols)
        if context < 3 or symbols < 2:
            raise UserError(f"a special token, what follows it, and the special token again take 3 tokens, and there "
                            f"must be 2 symbols: --context is {context}, there are {symbols}")  # fmt: skip
        self.symbols, self.vocab = symbols, symbols + 1

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        tokens = random.integers(self.symbols, size=(rows, self.context))
        first, every = random.integers(self.context - 2, size=rows), np.arange(rows)
        tokens[every, first] = tokens[:, -1] = self.symbols
        target = np.full_like(tokens, IGNORE)
        target[:, -1] = tokens[every, first + 1]
        return tokens, target
