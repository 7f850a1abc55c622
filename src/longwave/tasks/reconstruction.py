"""Reconstruction: a smooth random signal comes in; after its end, say what it was at points all over it.

What a state holds of the whole past (Gu et al. 2020, section 4.1 and figure 3: HiPPO).
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.tasks._generated import NumberTask, smooth


class Reconstruction(NumberTask):
    plan: ClassVar[dict[str, Any]] = {"context": 256, "batch": 32, "lr": 4e-3}
    model: ClassVar[dict[str, Any]] = {**NumberTask.model, "pool": "last"}
    d_input = 1

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        points: int = 32,  # evenly over the signal
        period: float = 32.0,  # steps of the signal's fastest wave
    ) -> None:
        super().__init__(context, batch, seed, points=points, period=period)
        if not (0 < points <= context and period >= 2):
            raise UserError(f"{points} points must be positive and at most --context {context}, and a period of "
                            f"{period} at least 2")  # fmt: skip
        self.n_answers, self.period = points, period

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        signal = smooth(random, rows, self.context, self.period)
        return signal[..., None], signal[:, np.linspace(0, self.context - 1, self.n_answers).astype(int)]
