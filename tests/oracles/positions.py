"""The formula, a number at a time; torch.nn.Embedding for the learned table."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.state import Empty
from oracles import gradients


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, started = torch.randn(3, 5, 7, dtype=torch.float64), torch.tensor([0, 3, 1000])
    lengths = torch.tensor([5, 2, 0])

    ours = mixers.create("positions", 7).double()
    y, state = ours(x, Empty(started), lengths)
    wanted = torch.zeros_like(y)
    for b in range(3):
        for t in range(5):
            for i in range(7):
                angle = (int(started[b]) + t) / 10000 ** (
                    2 * (i // 2) / 8
                )  # an odd width is cut from the next even one
                wanted[b, t, i] = math.cos(angle) if i % 2 else math.sin(angle)
    yield "sinusoids", y, wanted
    apart = mixers.create("positions", 7, halves=True).double()(x, Empty(started), lengths)[0]
    yield "sines before cosines", apart, torch.cat([wanted[..., 0::2], wanted[..., 1::2]], -1)
    yield "tokens seen", state.n.double(), (started + lengths).double()

    ours = mixers.create("positions", 7, kind="learned").double()
    at = torch.tensor([0, 3, 900])
    y, _ = ours(x, Empty(at), lengths)
    wanted = F.embedding(at[:, None] + torch.arange(5), ours.table)
    yield "a learned table", y, wanted
    yield from gradients(y, wanted, {"the table": (ours.table, ours.table)})
