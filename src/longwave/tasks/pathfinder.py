"""Pathfinder: are two dots the ends of one dashed curve, or of two? An image read pixel by pixel.

Two tasks of the Long Range Arena (Tay et al. 2021, sections 2.2.5 and 2.2.6): 32 x 32 pixels, and Path-X with
128 x 128, 16,384 steps; here with images of our own making. Chance is one half.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from longwave.data import pathfinder
from longwave.data.examples import Examples
from longwave.data.made import kept
from longwave.errors import UserError, check_positive
from longwave.tasks._classified import Classified

PIECE = 128  # images made at once


class Pathfinder(Classified):
    plan: ClassVar[dict[str, Any]] = {
        "context": 1024, "batch": 50, "lr": 4e-3, "decay": 0.03, "betas": (0.9, 0.999), "warmup": 500, "floor": 0.0,
        "minutes": 60.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 96, "n_layers": 4, "norm": "layer", "pool_norm": "after", "bidirectional": True,
    }  # fmt: skip
    d_input, n_classes = 1, 2

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # curv_contour_length_14 of the arena's pathfinder32, or a .npz; None: made here
        size: int = 32,  # pixels on a side; 128 is Path-X
        examples: int = 40000,  # for training; a twentieth of them for validation, and for test
        dashes: int | None = None,  # of the two long curves; None: 7 on 32 pixels, in proportion
        distractors: int = 4,  # shorter curves
    ) -> None:
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data, size=size, examples=examples, dashes=dashes,
                         distractors=distractors)  # fmt: skip
        if data is not None:
            self._read(data)
            return
        check_positive(size=size, examples=examples)
        dashes = dashes or max(3, 7 * size // 32)
        if size < 16 or dashes < 3 or distractors < 0 or dashes > 10 * size // 32:
            raise UserError(f"two curves of {dashes} dashes do not fit into {size} x {size} pixels")
        if context < size * size:
            raise UserError(f"an image is {size * size} steps long, more than a --context of {context}")
        held = max(2, examples // 20)

        def make() -> Iterator[Examples]:
            random = np.random.default_rng(0)
            while True:
                lines, dots, label = pathfinder.pictures(random, PIECE, size, dashes, distractors)
                yield Examples(pathfinder.draw(lines, dots, size).reshape(PIECE, -1, 1), label)

        every = kept(f"pathfinder-{size}-{examples}-{dashes}-{distractors}", examples + 2 * held, make)
        valid, test = every.take(np.arange(held)), every.take(np.arange(held, 2 * held))
        train = every.take(np.arange(2 * held, len(every)))
        self.have(train, valid, test, f"{len(train):,} generated images of {size} x {size}")

    def _read(self, data: str) -> None:
        """Of what is there a tenth is for validation and a tenth for test."""
        x, y = pathfinder.read(data)
        if len(y) < 10:
            raise UserError(f"{data} has {len(y)} images, too few to train, to validate and to test")
        pixels = int(np.prod(x.shape[1:]))
        if self.context < pixels:
            raise UserError(f"an image is {pixels} steps long, more than a --context of {self.context}")
        tenth = len(y) // 10
        valid, test, train = Examples(x.reshape(len(y), -1, 1), y).split(tenth, tenth)
        self.have(train, valid, test, f"{data}: {len(train):,} images of {x.shape[2]} x {x.shape[1]}")

    def scale(self, x: Tensor) -> Tensor:
        return x.float() / 255 - 0.5
