"""Selective copying: some symbols stand among blanks, at other places every time; then say them in order.

A model must choose by content what to remember, which one whose dynamics do not depend on its input cannot (Gu and Dao
2023, section 3.1 and 4.1.1; Arjovsky et al. 2016, section 4.2, for copying at fixed places).
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import TokenTask


class SelectiveCopy(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 272, "batch": 32, "lr": 2e-3, "decay": 0.0, "betas": (0.9, 0.98)}
    model: ClassVar[dict[str, Any]] = {"d_model": 64, "n_layers": 2, "ffn": None}  # mixers alone, as they did

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        items: int = 16,  # symbols to be copied
        symbols: int = 16,  # different ones there are
    ) -> None:
        super().__init__(context, batch, seed, items=items, symbols=symbols)
        if not (0 < items <= context // 2 and symbols > 1):
            raise UserError(f"{items} items of {symbols} symbols do not fit into a --context of {context}, whose last "
                            f"{items} tokens are where they are said")  # fmt: skip
        self.items, self.symbols = items, symbols
        self.vocab = symbols + 2  # and a blank, and what asks for the next symbol

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        memory = self.context - self.items
        tokens = np.full((rows, self.context), self.symbols)
        tokens[:, memory:] = self.symbols + 1
        said = random.integers(self.symbols, size=(rows, self.items))
        places = np.sort(random.random((rows, memory)).argsort(1)[:, : self.items], 1)
        np.put_along_axis(tokens, places, said, 1)
        target = np.full_like(tokens, IGNORE)
        target[:, memory:] = said
        return tokens, target
