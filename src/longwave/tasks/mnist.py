"""MNIST, a pixel a step: which digit is it, having seen it row by row, or in an order that scatters its strokes.

784 steps (Le, Jaitly and Hinton 2015, section 4.2); "random" is the permuted task of that paper, "reversed" (bits of
the position) that of Gu et al. 2020 and its successors.
"""

from typing import Any, ClassVar, Literal

from longwave.data import images
from longwave.tasks._pixels import Pixels, permutation


class MNIST(Pixels):
    plan: ClassVar[dict[str, Any]] = {
        "context": 784, "batch": 50, "lr": 5e-3, "decay": 0.01, "betas": (0.9, 0.999), "warmup": 200, "floor": 0.0,
        "minutes": 15.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 96, "n_layers": 4, "norm": "layer", "pool_norm": "after", "dropout": 0.1, "tied_dropout": True,
    }  # fmt: skip

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder of IDX files, mnist.npz, or "package"; None: scikit-learn's digits of 8 x 8
        order: Literal["rows", "random", "reversed"] = "rows",  # of the pixels
        permute_seed: int = 0,  # which random order
        patch: int = 1,  # pixels on a side of what a step reads
    ) -> None:
        super().__init__(context, batch, seed, data=data, order=order, permute_seed=permute_seed, patch=patch)
        found = images.digits() if data is None else images.mnist(data)
        steps = (found[0].shape[1] // max(1, patch)) * (found[0].shape[2] // max(1, patch))
        source = "scikit-learn's digits, not MNIST (--data has it)" if data is None else "MNIST"
        self.pixels(found, source, permutation(order, steps, permute_seed), patch)
