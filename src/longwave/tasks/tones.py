"""Tones: a noisy sine wave of one of several pitches, of any loudness and phase; say which.

The least that a classifier of sound must do; the stand-in for recorded speech.
"""

from typing import Any, ClassVar

import numpy as np

from longwave.errors import UserError
from longwave.tasks._generated import ClassTask


class Tones(ClassTask):
    plan: ClassVar[dict[str, Any]] = {"context": 256, "batch": 32, "lr": 4e-3}
    d_input = 1

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        pitches: int = 10,  # different ones, up to the highest by equal factors
        noise: float = 1.0,  # its deviation, where the wave's is from 0.35 to 1.4
        lowest: float = 0.02,  # waves a step
        highest: float = 0.2,
    ) -> None:
        super().__init__(context, batch, seed, pitches=pitches, noise=noise, lowest=lowest, highest=highest)
        if not (pitches > 1 and 0 < lowest < highest <= 0.5 and noise >= 0):
            raise UserError(f"tones need 2 pitches between 0 and half a wave a step, got {pitches} from {lowest} to "
                            f"{highest}, and noise that is not negative, got {noise}")  # fmt: skip
        self.n_classes, self.noise = pitches, noise
        self.waves = np.geomspace(lowest, highest, pitches)

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        which, phase = random.integers(self.n_classes, size=rows), random.random((rows, 1))
        angle = 2 * np.pi * (self.waves[which][:, None] * np.arange(self.context) + phase)
        heard = np.exp2(random.uniform(-1, 1, (rows, 1))) * np.sin(angle)
        heard += self.noise * random.normal(size=heard.shape)
        return heard.astype(np.float32)[..., None], which
