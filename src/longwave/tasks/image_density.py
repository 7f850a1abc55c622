"""Images and how likely they are: a model gives every value of every pixel a probability, given those before it.

Judged by bits a dimension (van den Oord et al. 2016, section 5): what a perfect code by this model needs for one value.
`--levels 2` are images of black and white.
"""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from longwave.data import images
from longwave.data.examples import Examples
from longwave.errors import UserError
from longwave.models.pixel_model import PixelModel
from longwave.tasks._classified import Classified, held_out


class ImageDensity(Classified):
    preset = "pixelcnn"
    decides = ("size", "colours", "levels")
    metric = "bits_per_dimension"
    better = "lower"
    plan: ClassVar[dict[str, Any]] = {"batch": 32, "lr": 3e-3, "decay": 0.01, "betas": (0.9, 0.99)}
    model: ClassVar[dict[str, Any]] = {"d_model": 48, "n_layers": 4, "first": 5, "d_out": 48}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # MNIST's folder of IDX files, mnist.npz or "package"; None: digits of 8 x 8
        levels: int = 16,  # values that a pixel can have, from black to white
    ) -> None:
        super().__init__(context, batch, seed, data=data, levels=levels)
        if not 2 <= levels <= 256:
            raise UserError(f"a pixel is a byte: levels are 2 to 256, got {levels}")
        x, y, x_test, y_test = images.digits() if data is None else images.mnist(data)
        whole, unseen = (Examples(np.moveaxis(part, 3, 1), of) for part, of in ((x, y), (x_test, y_test)))
        valid, train = whole.split(held_out(len(whole)))
        self.colours, self.side = train.x.shape[1:3]
        self.levels = levels
        whose = "scikit-learn's digits, not MNIST (--data has it)" if data is None else "MNIST"
        self.have(train, valid, unseen, f"{whose}: {len(x):,} images of {self.side} x {self.side}, {levels} levels")

    def fits(self) -> dict[str, Any]:
        return {"size": self.side, "colours": self.colours, "levels": self.levels}

    def check(self, model: Any) -> None:
        if not isinstance(model, PixelModel):
            raise UserError(f"how likely images are is for a model of pixels, not a {type(model).__name__}: "
                            "--model pixelcnn or pixelrnn")  # fmt: skip
        model.loss(self.batch(0)[0][:1])

    def scale(self, x: Tensor) -> Tensor:
        return x.long() * self.levels // 256

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        x, _ = batch
        return model.loss(x, reduction="sum", **how), torch.tensor(x.numel())

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        lost = count = 0.0
        for batch in batches:
            loss, n = self.loss(model, batch)
            lost, count = lost + float(loss), count + int(n)
        return {"loss": lost / count, "bits_per_dimension": lost / count / math.log(2)}
