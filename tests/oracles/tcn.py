"""The published network's layers: torch.nn.Conv1d under torch's weight norm, padded on both sides and chomped."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 6, dtype=torch.float64, requires_grad=True), torch.tensor([12, 5, 1])
    ours = mixers.create("tcn", 6, levels=3).double()
    h, of = x.mT, {"x": (x, x)}
    for level in range(3):
        before = h
        for i in (2 * level, 2 * level + 1):
            conv, mine = nn.Conv1d(6, 6, 3, padding=2 * 2**level, dilation=2**level).double(), ours.convs[i]
            with torch.no_grad():
                mine.gain.uniform_(0.5, 2)
                conv.bias.copy_(mine.bias)
            weight_norm(conv, dim=0)
            conv.parametrizations.weight.original0.data.copy_(mine.gain)
            conv.parametrizations.weight.original1.data.copy_(mine.weight)
            h = F.relu(conv(h)[..., : x.shape[1]])
            of[f"gain {i}"] = mine.gain, conv.parametrizations.weight.original0
            of[f"weight {i}"] = mine.weight, conv.parametrizations.weight.original1
        h = F.relu(before + h)
    y, wanted = zero_pads(ours(x, None, lengths)[0], lengths), zero_pads(h.mT, lengths)
    yield "output", y, wanted
    yield from gradients(y, wanted, of)
