"""torch.nn.MultiheadAttention's core over keys and values mixed by hand, each ragged row alone."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def row(x: Tensor, ours) -> Tensor:
    E, F_ = ours.mix[0, :, : len(x)], ours.mix[-1, :, : len(x)]
    q, k, v = (x @ w.T for w in ours.qkv.weight.chunk(3))
    heads = zip(*(t.chunk(ours.n_heads, -1) for t in (q, k, v)), strict=True)
    ys = [F.scaled_dot_product_attention(qh, E @ kh, F_ @ vh) for qh, kh, vh in heads]
    return torch.cat(ys, -1) @ ours.out.weight.T


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    for shared in (True, False):
        ours = mixers.create("linformer", 6, n_heads=2, rank=3, longest=12, shared=shared).double()
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        wanted = torch.stack([F.pad(row(x[b, :n], ours), (0, 0, 0, 9 - n)) for b, n in enumerate(lengths.tolist())])
        yield f"output, shared={shared}", y, wanted
        of = {"x": x, "mix": ours.mix, "qkv": ours.qkv.weight}
        yield from gradients(y, wanted, {f"{name}, shared={shared}": (t, t) for name, t in of.items()})
