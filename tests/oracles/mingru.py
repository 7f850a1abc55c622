"""The equations of Feng et al. 2024 in a plain loop, a row and a step at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.mixer import Mixer
from longwave.ops.ragged import zero_pads


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def g(a: Tensor) -> Tensor:
    return torch.where(a >= 0, a + 0.5, s(a))


def min_gru(projected: Tensor, h: Tensor) -> Tensor:
    z, candidate = projected.chunk(2)
    return (1 - s(z)) * h + s(z) * g(candidate)


def compared(ours: Mixer, step) -> Iterator[tuple[str, Tensor, Tensor]]:
    """`step(what the token projects to, h)` gives the next h."""
    p = dict(ours.named_parameters())
    x, lengths = torch.randn(3, 20, 6, dtype=torch.float64, requires_grad=True), torch.tensor([20, 7, 1])
    weight = torch.randn(3, 20, 6, dtype=torch.float64)
    rows, hs = [], []
    for b, length in enumerate(lengths.tolist()):
        h = torch.zeros(p["out.weight"].shape[1], dtype=x.dtype)
        ys = [torch.zeros(6, dtype=x.dtype)] * 20
        for t in range(length):
            h = step(p["project.weight"] @ x[b, t] + p["project.bias"], h)
            ys[t] = p["out.weight"] @ h + p["out.bias"]
        rows.append(torch.stack(ys))
        hs.append(h)
    wanted = torch.stack(rows)
    y, state = ours(x, ours.init_state(3), lengths)
    y = zero_pads(y, lengths)
    yield "output", y, wanted
    yield "h", state.h, torch.stack(hs)
    mine = torch.autograd.grad((y * weight).sum(), [x, *p.values()])
    right = torch.autograd.grad((wanted * weight).sum(), [x, *p.values()])
    for name, a, b in zip(("x", *p), mine, right, strict=True):
        yield f"gradient of {name}", a, b


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    yield from compared(mixers.create("mingru", 6).double(), min_gru)
