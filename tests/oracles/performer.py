"""The explicit quadratic form with the same random directions: every pair's estimate of exp(q.k), summed in a loop."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def features(x: Tensor, W: Tensor) -> Tensor:
    x = x / x.shape[-1] ** 0.25
    return torch.exp(x @ W.T) * torch.exp(-(x * x).sum(-1, keepdim=True) / 2) / len(W) ** 0.5


def row(x: Tensor, ours) -> Tensor:
    heads = []
    q, k, v = (x @ w.T for w in ours.qkv.weight.chunk(3))
    for qh, kh, vh in zip(*(t.chunk(ours.n_heads, -1) for t in (q, k, v)), strict=True):
        estimates = features(qh, ours.directions) @ features(kh, ours.directions).T
        ys = []
        for t in range(len(x)):
            weights = estimates[t, : t + 1] if ours.causal else estimates[t]
            ys.append(weights @ vh[: len(weights)] / weights.sum())
        heads.append(torch.stack(ys))
    return torch.cat(heads, -1) @ ours.out.weight.T


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    for causal in (True, False):
        ours = mixers.create("performer", 6, n_heads=2, n_features=5, causal=causal).double()
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        wanted = torch.stack([F.pad(row(x[b, :n], ours), (0, 0, 0, 9 - n)) for b, n in enumerate(lengths.tolist())])
        yield f"output, causal={causal}", y, wanted
        w = ours.qkv.weight
        yield from gradients(y, wanted, {f"x, causal={causal}": (x, x), f"the projection, causal={causal}": (w, w)})
