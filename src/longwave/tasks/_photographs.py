"""Photographs that people described: batches of them with their captions, and BLEU of what a model says."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longwave.data.examples import Order
from longwave.data.images import flickr8k
from longwave.data.tokens import learn_pieces
from longwave.errors import UserError
from longwave.generate.beam import beam_search
from longwave.generate.translate import padded

QUICK = 100  # photographs of a quick validation
AT_ONCE = 32
LONGEST = 40  # tokens that are said of one


class Photographs:
    """The vocabulary is learnt from the training captions; a step shows one caption of each photograph, drawn anew."""

    def __init__(self, data: str, batch: int, seed: int, vocab: int, beams: int) -> None:
        self.parts, self.seed, self.beams = flickr8k(data), seed, beams
        images, captions = self.parts["train"]
        self.tokens = learn_pieces([text for each in captions for text in each], vocab)
        self.mean, self.std = (torch.from_numpy(f(images, (0, 1, 2)) / 255).float() for f in (np.mean, np.std))
        self.order = Order(len(images), batch, seed)

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Images, captions, and how many tokens each caption has."""
        which = np.random.default_rng((self.seed, step))
        return self._shown("train", self.order.at(step).tolist(), which)

    def judge(self, model: Any, part: str, most: int | None = None) -> dict[str, float]:
        """The loss of every first caption, and BLEU against all of them, capitals aside."""
        try:
            import sacrebleu
        except ImportError as missing:
            raise UserError("BLEU needs: pip install 'longwave[translate]'") from missing
        captions, device = self.parts[part][1][:most], next(model.parameters()).device
        said: list[str] = []
        lost, count = 0.0, 0
        for first in range(0, len(captions), AT_ONCE):
            some = list(range(first, min(first + AT_ONCE, len(captions))))
            images, target, ends = (t.to(device) for t in self._shown(part, some))
            lost += float(model.loss(images, target, None, ends, reduction="sum"))
            count += int((ends - 1).sum())
            found = beam_search(model, target[:, :1], model.init_state(images), end=sorted(self.tokens.ends),
                                beams=self.beams, max_tokens=LONGEST)  # fmt: skip
            said += [self.tokens.decode(row[0].tokens).strip() for row in found]
        references = list(map(list, zip(*captions, strict=True)))
        return {"loss": lost / count, "bleu": sacrebleu.corpus_bleu(said, references, lowercase=True).score}

    def keep(self, folder: Path) -> None:
        self.tokens.save(folder)

    def describe(self) -> dict[str, Any]:
        images, captions = self.parts["train"]
        about = f"{len(images):,} photographs of {images.shape[1]} x {images.shape[2]}, each with {len(captions[0])}"
        mark = zlib.crc32("\n".join(text for each in captions for text in each).encode())
        return {"source": f"{about} captions", "mark": mark}

    def _shown(self, part: str, some: list[int], which: np.random.Generator | None = None) -> tuple[Tensor, ...]:
        images, captions = self.parts[part]
        scaled = (torch.from_numpy(images[some]).float() / 255 - self.mean) / self.std
        told = [captions[i][0 if which is None else int(which.integers(len(captions[i])))] for i in some]
        start, (end,) = self.tokens.start, self.tokens.ends
        assert start is not None
        return scaled.movedim(3, 1).contiguous(), *padded([[start, *self.tokens.encode(text), end] for text in told])
