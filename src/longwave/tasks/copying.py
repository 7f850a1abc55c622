"""Copying: some symbols, then a long blank, then say the symbols in order.

What a memory of fixed size must hold over a time that is known (Hochreiter and Schmidhuber 1997, section 5.4; Arjovsky
et al. 2016, section 4.2). Chance is 1 / symbols.
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import TokenTask


class Copying(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 128, "batch": 32, "lr": 2e-3}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        items: int = 10,  # symbols to be copied
        symbols: int = 8,  # different ones there are
    ) -> None:
        super().__init__(context, batch, seed, items=items, symbols=symbols)
        if not (0 < items <= context // 2 and symbols > 1):
            raise UserError(f"{items} items of {symbols} symbols, read and said, do not fit into a --context "
                            f"of {context}")  # fmt: skip
        self.items, self.symbols = items, symbols
        self.vocab = symbols + 2  # and a blank, and what asks for the next symbol

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        tokens = np.full((rows, self.context), self.symbols)
        tokens[:, -self.items :] = self.symbols + 1
        tokens[:, : self.items] = random.integers(self.symbols, size=(rows, self.items))
        target = np.full_like(tokens, IGNORE)
        target[:, -self.items :] = tokens[:, : self.items]
        return tokens, target
