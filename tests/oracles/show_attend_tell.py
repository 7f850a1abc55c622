"""The equations of Xu et al. 2015 in a plain loop, a row and a word at a time, around torch's own LSTM cell."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(layer, x: Tensor, memory: Tensor, lengths: list[int], grids: list[int]) -> tuple[Tensor, Tensor]:
    """Rows of y, zero behind each row's end, and the last c."""
    d = x.shape[2]
    cell = nn.LSTMCell(d + memory.shape[2], d).double()
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    cell.weight_ih, cell.weight_hh = torch.cat([layer.W.weight, layer.Z], 1), layer.U
    cell.bias_ih, cell.bias_hh = layer.W.bias, torch.zeros(4 * d, dtype=x.dtype)
    ys, lasts = [], []
    for row, (T, S) in enumerate(zip(lengths, grids, strict=True)):
        grid = memory[row, :S]
        first = torch.tanh(layer.first.weight @ (grid.sum(0) / max(S, 1)) + layer.first.bias)
        h, c = first[:d], first[d:]
        out = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(T):
            z = torch.zeros(memory.shape[2], dtype=x.dtype)
            if S:
                hidden = [layer.query @ h + layer.key.weight @ cell_ + layer.key.bias for cell_ in grid]
                alpha = torch.softmax(torch.stack([layer.score @ torch.tanh(each) for each in hidden]), 0)
                beta = torch.sigmoid(layer.gate.weight @ h + layer.gate.bias)
                z = beta * sum(a * each for a, each in zip(alpha, grid, strict=True))
            h, c = (each[0] for each in cell(torch.cat([x[row, t], z])[None], (h[None], c[None])))
            out[t] = layer.out.weight @ torch.cat([h, z])
        ys.append(torch.stack(out))
        lasts.append(c)
    return torch.stack(ys), torch.stack(lasts)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    layer = mixers.create("show_attend_tell", 5, d_memory=4, d_score=6).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.5)
    x, memory = (torch.randn(3, n, w, dtype=torch.float64, requires_grad=True) for n, w in ((7, 5), (6, 4)))
    lengths, grids = [7, 1, 4], [6, 0, 3]
    y, state = layer(x, layer.init_state(3, memory, torch.tensor(grids)), torch.tensor(lengths))
    y = zero_pads(y, torch.tensor(lengths))
    wanted, last = loop(layer, x, memory, lengths, grids)
    yield "output", y, wanted
    yield "c", state.c, last
    weight, named = torch.randn_like(y), dict(x=x, memory=memory, **dict(layer.named_parameters()))
    mine, right = (torch.autograd.grad((out * weight).sum(), list(named.values())) for out in (y, wanted))
    for name, a, b in zip(named, mine, right, strict=True):
        yield f"gradient of {name}", a, b
