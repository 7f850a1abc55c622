"""Attention with a mask of any shape, one query at a time, in plain products."""

from collections.abc import Callable

import torch
from torch import Tensor


def attend(layer, x: Tensor, sees: Callable[[int, int, int], set[int]]) -> Tensor:
    """`layer.qkv` and `layer.out` around a look-up, of one row x [T, D]; `sees(T, t, head)` are the keys of query t."""
    T, H = len(x), layer.n_heads
    q, k, v = (x @ layer.qkv.weight.T).view(T, 3, H, -1).unbind(1)
    outs = []
    for t in range(T):
        heads = []
        for h in range(H):
            seen = sorted(sees(T, t, h))
            scores = k[seen, h] @ q[t, h] / q.shape[-1] ** 0.5
            heads.append(torch.softmax(scores, 0) @ v[seen, h] if seen else torch.zeros_like(v[0, h]))
        outs.append(torch.cat(heads))
    return torch.stack(outs) @ layer.out.weight.T


def compared(which: str, layer, sees: Callable[[int, int, int], set[int]], lengths: list[int]):
    """(what, ours, theirs) of a ragged batch: outputs at real tokens and all gradients."""
    x = torch.randn(len(lengths), max(lengths), 8, dtype=torch.float64, requires_grad=True)
    y, _ = layer(x, None, torch.tensor(lengths))
    rows = [attend(layer, x[b, :n], sees) for b, n in enumerate(lengths)]
    ours, theirs = torch.cat([y[b, :n] for b, n in enumerate(lengths)]), torch.cat(rows)
    yield f"output, {which}", ours, theirs
    weight, inputs = torch.randn_like(ours), [x, layer.qkv.weight, layer.out.weight]
    mine, right = (torch.autograd.grad((out * weight).sum(), inputs) for out in (ours, theirs))
    for name, a, b in zip(("x", "qkv", "out"), mine, right, strict=True):
        yield f"gradient of {name}, {which}", a, b
