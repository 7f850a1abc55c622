"""Bai et al. 2019, eq. 1-2, with the LSTM's gates: a row, a layer and a step at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def row(x: Tensor, W: Tensor, b: Tensor, U: Tensor, depth: int) -> Tensor:
    T, d = x.shape
    zero = torch.zeros(d, dtype=x.dtype)
    h, c = [zero] * (T + 1), [zero] * (T + 1)  # what stands at t is at t + 1: before the first step all is zero
    before = [zero, *x]
    for _ in range(depth):
        hs, cs = [zero], [zero]
        for t in range(1, T + 1):
            pre = W[..., 0] @ before[t - 1] + W[..., 1] @ before[t] + b + U[:, :d] @ h[t - 1] + U[:, d:] @ h[t]
            f, i, g, o = pre.chunk(4)
            cs.append(s(f) * c[t - 1] + s(i) * torch.tanh(g))
            hs.append(s(o) * torch.tanh(cs[-1]))
        h, c = hs, cs
    return torch.stack(h[1:])


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 7, 5, dtype=torch.float64, requires_grad=True), torch.tensor([7, 4, 1])
    ours = mixers.create("trellisnet", 5, depth=4).double()
    y = zero_pads(ours(x, None, lengths)[0], lengths)
    W, b, U = ours.inject.weight, ours.inject.bias, ours.U
    rows = [row(x[i, :n], W, b, U, 4) for i, n in enumerate(lengths.tolist())]
    wanted = torch.stack([torch.cat([r, torch.zeros(7 - len(r), 5, dtype=r.dtype)]) for r in rows])
    yield "output", y, wanted
    yield from gradients(y, wanted, {"x": (x, x), "W": (W, W), "b": (b, b), "U": (U, U)})
