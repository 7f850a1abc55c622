"""Speech commands: which word is spoken, from the samples themselves or from their MFCC.

SC10 (Kidger et al. 2020; Romero et al. 2021, section 5.2): ten words, a second at 16 kHz. A model of continuous time is
tested at half the rate as well: every other sample, each a step twice as long (Gu, Goel and Re 2022, section 4.3).
"""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longwave.data import audio
from longwave.data.examples import Examples, padded, ragged
from longwave.tasks._classified import Classified

CUT = 10  # training leaves out up to a tenth of a recording at either end
LOUDER = 0.3  # and changes its loudness by a factor whose logarithm has this deviation


class Speech(Classified):
    plan: ClassVar[dict[str, Any]] = {
        "context": 16000, "batch": 32, "lr": 5e-3, "decay": 0.02, "betas": (0.9, 0.999), "warmup": 100, "floor": 0.0,
        "smoothing": 0.05, "minutes": 10.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 64, "n_layers": 4, "norm": "layer", "pool_norm": "after", "dropout": 0.1, "tied_dropout": True,
    }  # fmt: skip

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder of wav files a word, or fsdd.npz; None: sounds made here
        features: Literal["raw", "mfcc"] = "raw",  # what a step reads: a sample, or 20 coefficients of 200 samples
    ) -> None:
        super().__init__(context, batch, seed, data=data, features=features)
        *parts, names = audio.chirps(context) if data is None else audio.read(data, context)
        self.features, self.n_classes = features, len(names)
        if features == "mfcc":
            parts = [ragged([audio.mfcc(row) for row in p.rows(np.arange(len(p)))], p.y) for p in parts]
        else:
            parts = [Examples(p.x[:, None], p.y, p.starts) for p in parts]
        train, valid, test = parts
        self.d_input = train.x.shape[1]
        self.mean, self.std = (torch.from_numpy(f(train.x, 0)) for f in (np.mean, np.std))
        whose = "generated chirps, no speech (--data has it)" if data is None else data
        self.have(train, valid, test, f"{whose}: {len(train):,} recordings of {', '.join(names)}")

    def scale(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std if self.features == "mfcc" else x

    def show(self, examples: Examples, some: np.ndarray, random: np.random.Generator | None) -> tuple[Tensor, ...]:
        rows = examples.rows(some)
        if random is not None and self.features == "raw":
            rows = [_varied(row, random) for row in rows]
        x, lengths = padded(rows)
        return self.scale(x), torch.from_numpy(examples.y[some]), lengths

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        found = super().test(model, **how)
        if self.features == "raw" and model.backbone.continuous:
            rows = self.unseen.rows(np.arange(len(self.unseen)))
            slower = ragged([row[::2] for row in rows], self.unseen.y)
            found["accuracy_half_rate"] = self.judge(model, self.batches(model, slower), dt=2.0)["accuracy"]
        return found


def _varied(row: np.ndarray, random: np.random.Generator) -> np.ndarray:
    first, last = random.integers(max(1, len(row) // CUT), size=2)
    return row[first : len(row) - last] * np.float32(np.exp(LOUDER * random.normal()))
