"""Captioning: a picture has one thing in one of its quarters; say what it is and where, in a sentence.

Whether a caption is right can be checked word by word, and where the model looked by the quarter that the thing is in:
`attention` is the share of it there, over the words that name the thing (what Xu et al. 2015, section 5.4, show as
pictures). The things are of three colours and three shapes, anywhere within a quarter, on noise.

With data: photographs that people described (Flickr8k), judged by BLEU (sacrebleu) of what beam search finds. They call
for more than the small model that things in quarters need: --no-small --depths 2 2 2 --width 32 --d-model 256.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longwave.errors import UserError, check_positive
from longwave.record import recording
from longwave.tasks._generated import Generated
from longwave.tasks._photographs import QUICK, Photographs

COLOURS, SHAPES = ("red", "green", "blue"), ("square", "cross", "ring")
WORDS = ("<start>", "<end>", "a", *COLOURS, *SHAPES, "at", "the", "top", "bottom", "left", "right")
AT = {word: i for i, word in enumerate(WORDS)}
START, END = 0, 1
NAMING = (1, 2)  # which words after the first name the thing
SIDE = 5  # rows and columns of a thing


def stamps() -> np.ndarray:
    """The shapes, [3, SIDE, SIDE] of zeros and ones."""
    square = np.ones((SIDE, SIDE))
    cross, ring = np.zeros_like(square), square.copy()
    cross[SIDE // 2], cross[:, SIDE // 2] = 1, 1
    ring[1:-1, 1:-1] = 0
    return np.stack([square, cross, ring])


class Captioning(Generated):
    preset = "show_attend_tell"
    decides = ("vocab", "channels")
    metric: ClassVar[str] = "exact"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    plan: ClassVar[dict[str, Any]] = {"batch": 64, "lr": 3e-3}
    model: ClassVar[dict[str, Any]] = {
        "d_model": 32,
        "kind": "basic",
        "width": 16,
        "depths": (1, 1),
        "small": True,
        "coverage": 0.0,
    }  # to look at one thing is not to look everywhere

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        size: int = 16,  # rows of a picture, and columns
        noise: float = 0.1,  # how strong it is, in units of the thing
        data: str | None = None,  # a flickr8k_64px.npz; None: things in quarters, made here
        vocab: int = 2000,  # tokens learnt from the captions of data
        beams: int = 3,  # captions of data that the search keeps
    ) -> None:
        super().__init__(context, batch, seed, size=size, noise=noise, data=data, vocab=vocab, beams=beams)
        check_positive(vocab=vocab, beams=beams)
        self.photographs = None if data is None else Photographs(data, batch, seed, vocab, beams)
        if self.photographs:
            self.metric = "bleu"  # type: ignore[misc]
        if size % 2 or size // 2 < SIDE:
            raise UserError(f"a quarter of a picture holds a thing of {SIDE} rows: size is even and at least "
                            f"{2 * SIDE}, got {size}")  # fmt: skip
        self.side, self.noise = size, noise

    def fits(self) -> dict[str, Any]:
        return {"vocab": self.photographs.tokens.size if self.photographs else len(WORDS), "channels": len(COLOURS)}

    def check(self, model: Any) -> None:
        images, captions, _ = self.batch(0)
        if self.photographs and getattr(model, "n_tokens", 0) < self.photographs.tokens.size:
            raise UserError(f"the captions have {self.photographs.tokens.size} tokens, more than this model")
        try:
            model.loss(images[:1], captions[:1])
        except (TypeError, RuntimeError) as problem:
            raise UserError("captions are for a model that reads images and writes tokens") from problem

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        """Pictures, captions, and the quarter that each thing is in."""
        colour, shape, down, across = (random.integers(n, size=rows) for n in (3, 3, 2, 2))
        half = self.side // 2
        images = self.noise * random.normal(size=(rows, 3, self.side, self.side))
        places = random.integers(half - SIDE + 1, size=(rows, 2)) + half * np.stack([down, across], 1)
        for i, (y, x) in enumerate(places):
            images[i, colour[i], y : y + SIDE, x : x + SIDE] += stamps()[shape[i]]
        told = [AT[COLOURS[0]] + colour, AT[SHAPES[0]] + shape, AT["top"] + down, AT["left"] + across]
        sentence: list[Any] = [START, AT["a"], told[0], told[1], AT["at"], AT["the"], told[2], told[3], END]
        captions = np.stack([word + np.zeros_like(colour) for word in sentence], 1)
        return images.astype(np.float32), captions, 2 * down + across

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return self.photographs.batch(step) if self.photographs else super().batch(step)

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        if self.photographs:
            return self.photographs.judge(model, "valid", QUICK if quick else None)
        return super().validate(model, quick=quick, **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return self.photographs.judge(model, "test") if self.photographs else super().test(model, **how)

    def keep(self, folder: Path) -> None:
        if self.photographs:
            self.photographs.keep(folder)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **(self.photographs.describe() if self.photographs else {})}

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        images, captions, ends = batch
        if self.photographs:
            return model.loss(images, captions, None, ends, reduction="sum", **how), (ends - 1).sum()
        return model.loss(images, captions, reduction="sum", **how), torch.tensor(captions[:, 1:].numel())

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        """`exact` captions, said word by word, each the likeliest; `attention` where a decoder's is recorded."""
        lost, right, looked, count = 0.0, 0, 0.0, 0
        for images, captions, quarter in batches:
            lost += float(model.loss(images, captions, reduction="sum"))
            state, token, said, weights = model.init_state(images), captions[:, :1], [], []
            for _ in range(captions.shape[1] - 1):
                with recording(model.decoder) as tape:
                    logits, state = model(token, state)
                token = logits.argmax(-1)
                said.append(token)
                weights += [w[:, 0, 0] for name, w in tape.items() if name.endswith("weights")][-1:]
            right += int((torch.cat(said, 1) == captions[:, 1:]).all(1).sum())
            if weights:
                looked += float(sum(_within(weights[n], quarter).sum() for n in NAMING)) / len(NAMING)
            count += len(images)
        words = count * (captions.shape[1] - 1)
        return {"loss": lost / words, "exact": right / count, **({"attention": looked / count} if looked else {})}


def _within(weights: Tensor, quarter: Tensor) -> Tensor:
    """Of weights [B, S] over the rows of a square grid, the share of the quarter."""
    side = round(weights.shape[1] ** 0.5)
    cells = torch.arange(side * side, device=weights.device)
    at = 2 * (cells // side >= side / 2).long() + (cells % side >= side / 2).long()
    return (weights * (at == quarter[:, None])).sum(1)
