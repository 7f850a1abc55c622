"""CIFAR-10, a pixel a step: 1024 steps of three colours, or of grey (the Image task of the Long Range Arena).

Trinh et al. 2018 (pixel by pixel); Tay et al. 2021, section 2.2.4 (grey).
"""

from typing import Any, ClassVar

import numpy as np

from longwave.data import images
from longwave.tasks._pixels import Pixels

GREY = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


class CIFAR(Pixels):
    plan: ClassVar[dict[str, Any]] = {
        "context": 1024, "batch": 50, "lr": 4e-3, "decay": 0.05, "betas": (0.9, 0.999), "warmup": 500, "floor": 0.0,
        "minutes": 30.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 128, "n_layers": 4, "norm": "layer", "pool_norm": "after", "dropout": 0.1, "tied_dropout": True,
    }  # fmt: skip

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder of CIFAR-10's binary batches; None: scikit-learn's digits of 8 x 8
        grey: bool = False,  # one number a pixel in place of three colours
        patch: int = 1,  # pixels on a side of what a step reads
    ) -> None:
        super().__init__(context, batch, seed, data=data, grey=grey, patch=patch)
        x, y, x_test, y_test = images.digits() if data is None else images.cifar10(data)
        if grey and x.shape[3] == 3:
            x, x_test = (np.rint(part @ GREY).astype(np.uint8)[..., None] for part in (x, x_test))
        source = "scikit-learn's digits, not CIFAR-10 (--data has it)" if data is None else "CIFAR-10"
        self.pixels((x, y, x_test, y_test), source, patch=patch)
