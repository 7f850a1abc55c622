"""The product with DFT matrices, written out, a ragged row at a time; transformers' FNet layer on an unpadded batch."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import FNetConfig
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def dft(n: int) -> Tensor:
    at = torch.arange(n, dtype=torch.float64)
    angle = -2 * math.pi * at[:, None] * at / n
    return torch.complex(angle.cos(), angle.sin())


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("fnet", 6)
    x, lengths = torch.randn(4, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1, 0])
    y = zero_pads(ours(x, None, lengths)[0], lengths)
    rows = [(dft(n) @ x[b, :n].to(torch.complex128) @ dft(6)).real for b, n in enumerate(lengths.tolist())]
    wanted = torch.stack([torch.cat([row, torch.zeros(9 - len(row), 6, dtype=row.dtype)]) for row in rows])
    yield "output", y, wanted
    yield from gradients(y, wanted, {"x": (x, x)})

    theirs = FNetBasicFourierTransform(FNetConfig(hidden_size=6))
    yield "without padding", ours(x)[0], theirs(x)[0]
