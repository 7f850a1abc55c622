"""Ma et al. 2021, section 3.3, a step at a time with sums written out; not causal, section 3.1 by torch's softmax."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def causal(q: Tensor, packs: Tensor, k: Tensor, v: Tensor, P: Tensor) -> Tensor:
    scale = 1 / math.sqrt(q.shape[1])
    a = [torch.where(s > 0, s + 1, torch.exp(s)) for s in (P @ x * scale for x in packs)]
    ys = []
    for t in range(1, len(q) + 1):
        scores = sum((q[t - 1] * scale @ k[j]) * a[j] for j in range(t)) / t
        w = torch.exp(scores) / torch.exp(scores).sum()
        ys.append(sum((w @ a[j]) * v[j] for j in range(t)) / t)
    return torch.stack(ys)


def row(x: Tensor, ours) -> Tensor:
    H, P = ours.n_heads, ours.queries.unbind(1)
    parts = [(x @ w.T).chunk(H, -1) for w in ours.project.weight.split(x.shape[1])]
    if ours.causal:
        ys = [causal(*heads, p) for *heads, p in zip(*parts, P, strict=True)]
    else:
        q, packs, values = parts
        scale = 1 / math.sqrt(q[0].shape[1])
        packed = torch.cat([(p @ k.T * scale).softmax(-1) @ v for p, k, v in zip(P, packs, values, strict=True)], -1)
        k, v = ((packed @ w.T).chunk(H, -1) for w in ours.unpack.weight.chunk(2))
        ys = [(qh @ kh.T * scale).softmax(-1) @ vh for qh, kh, vh in zip(q, k, v, strict=True)]
    return torch.cat(ys, -1) @ ours.out.weight.T


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True), torch.tensor([7, 4, 1])
    for is_causal in (True, False):
        for packed in (3, 9):  # fewer than tokens, and more
            ours = mixers.create("luna", 6, n_heads=2, packed=packed, causal=is_causal).double()
            y = zero_pads(ours(x, None, lengths)[0], lengths)
            wanted = torch.stack([F.pad(row(x[b, :n], ours), (0, 0, 0, 7 - n)) for b, n in enumerate(lengths.tolist())])
            which = f"{packed} packed, causal={is_causal}"
            yield f"output, {which}", y, wanted
            of = {"x": x, "queries": ours.queries, "project": ours.project.weight}
            yield from gradients(y, wanted, {f"{name}, {which}": (t, t) for name, t in of.items()})
