"""Delay: a smooth random signal comes in; say at every step what it was so many steps ago (0: before it began).

What a linear memory of the past must do, and all it must do (Voelker et al. 2019, section 3.1; Gu et al. 2023, "How to
train your HiPPO", section 4.1).
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.tasks._generated import Generated, smooth


class Delay(Generated):
    preset = "classifier"
    decides = ("vocab", "d_input", "n_classes", "head")
    metric = "error"
    better = "lower"
    plan: ClassVar[dict[str, Any]] = {"context": 512, "batch": 16, "lr": 4e-3}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        delay: int = 128,  # steps
        period: float = 16.0,  # steps of the signal's fastest wave
    ) -> None:
        super().__init__(context, batch, seed, delay=delay, period=period)
        if not (0 < delay < context and period >= 2):
            raise UserError(f"a delay of {delay} must be positive and less than --context {context}, and a period "
                            f"of {period} at least 2")  # fmt: skip
        self.delay, self.period = delay, period

    def fits(self) -> dict[str, Any]:
        return {"vocab": None, "d_input": 1, "n_classes": 1, "head": "predict"}

    def check(self, model: Any) -> None:
        model(torch.zeros(1, 2, 1))

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        signal = smooth(random, rows, self.context, self.period)[..., None]
        past = np.zeros_like(signal)
        past[:, self.delay :] = signal[:, : -self.delay]
        return signal, past

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        signal, past = batch
        return model.loss(signal, past, reduction="sum", **how), torch.tensor(past.numel())

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        """`error` is the root of the mean squared error, in units of the signal's: 1 is to know nothing."""
        lost = power = 0.0
        count = 0
        for signal, past in batches:
            lost += float(model.loss(signal, past, reduction="sum", **how))
            power += float(past.square().sum())
            count += past.numel()
        return {"loss": lost / count, "error": (lost / power) ** 0.5}
