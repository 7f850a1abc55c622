"""Parity: after every bit, say whether an odd number of ones has come.

The smallest thing that needs a state to be followed: one attention layer or a linear recurrence with positive decay
cannot (Hahn 2020, section 5; Grazzi et al. 2025, theorem 1). Chance is one half.
"""

from typing import Any, ClassVar

import numpy as np

from longwave.tasks._generated import TokenTask


class Parity(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"context": 64, "batch": 64, "lr": 2e-3}
    vocab = 2

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        bits = random.integers(2, size=(rows, self.context))
        return bits, bits.cumsum(1) % 2
