"""Adding: two of many random numbers are marked; say their sum.

Hochreiter and Schmidhuber 1997, section 5.4, as in Le, Jaitly and Hinton 2015, section 4.1: numbers from 0 to 1, one
mark in each half. Always to say 1 has a mean squared error of 1/6.
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.tasks._generated import NumberTask


class Adding(NumberTask):
    plan: ClassVar[dict[str, Any]] = {"context": 128, "batch": 32, "lr": 2e-3}
    d_input, n_answers = 2, 1

    def __init__(self, context: int, batch: int, seed: int) -> None:
        super().__init__(context, batch, seed)
        if context < 2:
            raise UserError(f"two numbers need a --context of at least 2, got {context}")

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        numbers, every, half = random.random((rows, self.context), np.float32), np.arange(rows), self.context // 2
        marks = np.zeros_like(numbers)
        marks[every, random.integers(half, size=rows)] = 1
        marks[every, random.integers(half, self.context, size=rows)] = 1
        return np.stack([numbers, marks], -1), (numbers * marks).sum(1, keepdims=True)
