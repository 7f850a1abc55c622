"""The block's layers in torch.nn (LayerNorm, ReLU, Conv1d) in the paper's order, each ragged row alone."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


class Block(nn.Module):
    def __init__(self, d: int, dilation: int, *, causal: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d // 2), nn.LayerNorm(d // 2)])
        self.narrow, self.widen = nn.Conv1d(d, d // 2, 1), nn.Conv1d(d // 2, d, 1)
        self.wide = nn.Conv1d(d // 2, d // 2, 3, dilation=dilation, padding=0 if causal else "same")
        self.past = 2 * dilation if causal else 0

    def forward(self, x: Tensor) -> Tensor:
        h = self.narrow(F.relu(self.norms[0](x)).T)
        h = self.wide(F.pad(F.relu(self.norms[1](h.T)).T, (self.past, 0)))
        return x + self.widen(F.relu(self.norms[2](h.T)).T).T


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 6, dtype=torch.float64, requires_grad=True), torch.tensor([12, 5, 1])
    for causal in (True, False):
        ours = mixers.create("bytenet", 6, levels=3, causal=causal).double()
        theirs, of = [Block(6, 2**i, causal=causal).double() for i in range(3)], {f"x, causal={causal}": (x, x)}
        for i, (block, mine) in enumerate(zip(theirs, ours.blocks, strict=True)):
            for norm, right in zip(block.norms, mine.norms, strict=True):
                norm.weight, norm.bias = right.weight, right.bias
            block.narrow.weight, block.narrow.bias = nn.Parameter(mine.narrow.weight[..., None]), mine.narrow.bias
            block.widen.weight, block.widen.bias = nn.Parameter(mine.out.weight[..., None]), mine.out.bias
            block.wide.weight, block.wide.bias = mine.conv.weight, mine.conv.bias
            of[f"taps of block {i}, causal={causal}"] = (mine.conv.weight, block.wide.weight)
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        rows = [nn.Sequential(*theirs)(x[b, :n]) for b, n in enumerate(lengths.tolist())]
        wanted = torch.stack([F.pad(row, (0, 0, 0, 12 - len(row))) for row in rows])
        yield f"output, causal={causal}", y, wanted
        yield from gradients(y, wanted, of)
