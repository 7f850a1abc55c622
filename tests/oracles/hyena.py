"""Poli et al. 2023, Definition 3.1 and eq. 7: filters tap by tap, then every pair (output, earlier input) in a loop."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def taps(network, n: int) -> Tensor:
    """h(t) = FFN(positional encoding of t) window(t); the skip is one more weight on the input of the same step."""
    hs = []
    for t in range(n):
        turns = [t * rate for rate in network.rates.tolist()]
        h = torch.tensor([t / network.longest, *[math.cos(a) for a in turns], *[-math.sin(a) for a in turns]],
                         dtype=torch.float64)  # fmt: skip
        for i, layer in enumerate(network.network):
            h = layer.weight @ h + layer.bias
            h = torch.sin(10 * h) if i < 2 else h
        window = torch.tensor([math.exp(-t / network.longest * s) for s in network.decay.tolist()], dtype=torch.float64)
        hs.append(h * window + (network.skip if t == 0 else 0))
    return torch.stack(hs)


def loop(x: Tensor, ours, lengths: list[int]) -> Tensor:
    filters = [taps(f, x.shape[1]) for f in ours.filters]
    width, rows = ours.conv.shape[1], []
    for b, length in enumerate(lengths):
        z = [ours.project.weight @ x[b, t] + ours.project.bias for t in range(length)]
        u = []
        for t in range(length):
            seen = [ours.conv[:, width - 1 - s] * z[t - s] for s in range(min(width, t + 1))]
            u.append(sum(seen) + ours.conv_bias)
        v, *gates = (list(part) for part in zip(*(ut.chunk(len(ours.filters) + 2) for ut in u), strict=True))
        for h, gate in zip(filters, gates[:-1], strict=True):
            gated = [g * each for g, each in zip(gate, v, strict=True)]
            v = [sum(h[t - s] * gated[s] for s in range(t + 1)) for t in range(length)]
        ys = [ours.out.weight @ (g * each) + ours.out.bias for g, each in zip(gates[-1], v, strict=True)]
        rows.append(torch.stack(ys + [torch.zeros_like(x[0, 0])] * (x.shape[1] - length)))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 4, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    for order in (2, 3):
        ours = mixers.create("hyena", 4, order=order, longest=16).double()
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        wanted = loop(x, ours, lengths.tolist())
        yield f"output, order {order}", y, wanted
        bands = [1e-4 + (8 - 1 - 1e-4) * i / 7 for i in range(8)]  # both are made in float32
        speeds = [math.log(1e-2) * (1 / 0.3 + (1 / 1.5 - 1 / 0.3) * c / 3) for c in range(4)]
        yield "rates", ours.filters[0].rates.float(), torch.tensor([2 * math.pi * f / 16 for f in bands])
        yield "decay", ours.filters[0].decay.float(), torch.tensor([-s for s in speeds])
        of = {"x": x, "conv": ours.conv, "the filter's network": ours.filters[0].network[1].weight}
        yield from gradients(y, wanted, {f"{name}, order {order}": (t, t) for name, t in of.items()})
