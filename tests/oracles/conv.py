"""torch.nn.Conv1d: padded on the left where causal, padding="same" where centred, each ragged row alone."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(4, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1, 0])
    for causal in (True, False):
        for taps, dilation in ((4, 1), (3, 2)):
            ours = mixers.create("conv", 6, taps=taps, dilation=dilation, causal=causal).double()
            theirs = nn.Conv1d(6, 6, taps, dilation=dilation, padding=0 if causal else "same").double()
            theirs.weight, theirs.bias = ours.conv.weight, ours.conv.bias
            y = zero_pads(ours(x, None, lengths)[0], lengths)
            rows = [
                F.pad(x[b, :n].T, ((taps - 1) * dilation, 0)) if causal else x[b, :n].T for b, n in enumerate(lengths)
            ]
            done = [theirs(row).T if n else row[:, :0].T for row, n in zip(rows, lengths.tolist(), strict=True)]
            wanted = torch.stack([F.pad(row, (0, 0, 0, 9 - len(row))) for row in done])
            which = f"{taps} taps, dilation {dilation}, causal={causal}"
            yield f"output, {which}", y, wanted
            of = {"x": (x, x), "weight": (ours.conv.weight, theirs.weight), "bias": (ours.conv.bias, theirs.bias)}
            yield from gradients(y, wanted, {f"{name}, {which}": both for name, both in of.items()})
