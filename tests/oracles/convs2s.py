"""torch.nn.Conv1d under torch's weight norm, torch's GLU, and the residual's sqrt(1/2), each ragged row alone."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 5, 1])
    for causal in (True, False):
        ours = mixers.create("convs2s", 6, levels=3, causal=causal).double()
        theirs, of = [], {f"x, causal={causal}": (x, x)}
        for i, mine in enumerate(ours.convs):
            conv = weight_norm(nn.Conv1d(6, 12, 3, padding=0 if causal else 1).double(), dim=0)
            nn.init.normal_(mine.bias)
            conv.bias = mine.bias
            conv.parametrizations.weight.original0.data.copy_(mine.gain)
            conv.parametrizations.weight.original1.data.copy_(mine.weight)
            of[f"weight {i}, causal={causal}"] = mine.weight, conv.parametrizations.weight.original1
            theirs.append(conv)
        rows = []
        for b, n in enumerate(lengths.tolist()):
            h = x[b, :n].T
            for conv in theirs:
                h = (h + F.glu(conv(F.pad(h, (2 if causal else 0, 0))), 0)) * math.sqrt(0.5)
            rows.append(F.pad(h.T, (0, 0, 0, 9 - n)))
        y, wanted = zero_pads(ours(x, None, lengths)[0], lengths), torch.stack(rows)
        yield f"output, causal={causal}", y, wanted
        yield from gradients(y, wanted, of)
