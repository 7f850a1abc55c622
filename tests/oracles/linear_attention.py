"""Katharopoulos et al. 2020, eq. 9 (each pair of tokens, not the recurrence), a row, a head and a step at a time."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients

MAPS = {
    "elu+1": lambda a: torch.where(a > 0, a + 1, torch.exp(a)),
    "relu": lambda a: torch.where(a > 0, a, 0) + 1e-3,
    "exp": torch.exp,
    "softmax": lambda a: torch.exp(a) / torch.exp(a).sum(),
    "identity": lambda a: a / math.sqrt(len(a)),
}


def loop(x: Tensor, ours, lengths: list[int], phi, normalise: bool) -> Tensor:
    H, rows = ours.n_heads, []
    for b, length in enumerate(lengths):
        ys = [torch.zeros_like(x[b, 0])] * x.shape[1]
        q, k, v = (x[b] @ w.T for w in ours.qkv.weight.chunk(3))
        for t in range(length):
            heads = []
            for qh, kh, vh in zip(q.chunk(H, -1), k.chunk(H, -1), v.chunk(H, -1), strict=True):
                weights = torch.stack([phi(qh[t]) @ phi(kh[s]) for s in range(t + 1)])
                heads.append((weights / weights.sum() if normalise else weights) @ vh[: t + 1])
            ys[t] = ours.out.weight @ torch.cat(heads)
        rows.append(torch.stack(ys))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    for feature, phi in MAPS.items():
        normalise = feature != "identity"
        ours = mixers.create("linear_attention", 6, n_heads=2, feature=feature, normalise=normalise).double()
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        wanted = loop(x, ours, lengths.tolist(), phi, normalise)
        yield f"output, {feature}", y, wanted
        w = ours.qkv.weight
        yield from gradients(y, wanted, {f"x, {feature}": (x, x), f"the projection, {feature}": (w, w)})
