"""What tasks on images share: an image becomes a sequence of its pixels, or of square patches, in some order."""

import numpy as np
import torch
from torch import Tensor

from longwave.data.examples import Examples
from longwave.data.images import Images
from longwave.errors import UserError, check_divides, choose
from longwave.tasks._classified import Classified, held_out


def bit_reversed(n: int) -> np.ndarray:
    """0 ... n - 1 in the order of their binary digits read backwards."""
    bits = max(1, (n - 1).bit_length())
    backwards = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
    return np.array([i for i in backwards if i < n])


def permutation(order: str, n: int, seed: int) -> np.ndarray:
    orders = {
        "rows": lambda: np.arange(n),
        "random": lambda: np.random.default_rng(seed).permutation(n),
        "reversed": lambda: bit_reversed(n),
    }
    return choose("order", order, orders)()


def sequences(images: np.ndarray, patch: int) -> np.ndarray:
    """[N, rows, columns, C] -> [N, patches, patch * patch * C], row by row."""
    N, H, W, C = images.shape
    check_divides("patches", H // patch if H % patch == 0 else 0, "rows", H)
    cut = images.reshape(N, H // patch, patch, W // patch, patch, C).swapaxes(2, 3)
    return np.ascontiguousarray(cut).reshape(N, (H // patch) * (W // patch), patch * patch * C)


class Pixels(Classified):
    n_classes = 10

    def pixels(self, images: Images, source: str, order: np.ndarray | None = None, patch: int = 1) -> None:
        """Take these images: of training a part for validation, all numbers shifted and scaled by training's mean and
        deviation, a channel."""
        x, y, x_test, y_test = images
        self.mean = torch.from_numpy(np.tile(x.mean((0, 1, 2)) / 255, patch * patch)).float()
        self.std = torch.from_numpy(np.tile(x.std((0, 1, 2)) / 255, patch * patch)).float()
        train, test = (Examples(sequences(part, patch), classes) for part, classes in ((x, y), (x_test, y_test)))
        steps = train.x.shape[1]
        if self.context < steps:
            raise UserError(f"an image is {steps} steps long, more than a --context of {self.context}")
        if order is not None:
            train.x, test.x = (np.ascontiguousarray(part.x[:, order]) for part in (train, test))
        self.d_input = train.x.shape[2]
        valid, rest = train.split(held_out(len(train)))
        self.have(rest, valid, test, f"{source}: {len(x):,} images of {x.shape[1]} x {x.shape[2]}")

    def scale(self, x: Tensor) -> Tensor:
        return (x.float() / 255 - self.mean) / self.std
