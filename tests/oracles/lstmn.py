"""The equations of Cheng et al. 2016 in a plain loop, a row, a step and a cell of the tape at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(layer, x: Tensor, lengths: list[int]) -> Tensor:
    d, rows = x.shape[2], []
    for row, length in enumerate(lengths):
        tape_h, tape_c, summary = [], [], torch.zeros(d, dtype=x.dtype)
        ys = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(length):
            read_h = read_c = torch.zeros(d, dtype=x.dtype)
            if t:
                e = [layer.score @ torch.tanh(layer.A @ h + layer.X.weight @ x[row, t] + layer.S @ summary)
                     for h in tape_h]  # fmt: skip
                for weight, h, c in zip(torch.softmax(torch.stack(e), 0), tape_h, tape_c, strict=True):
                    read_h, read_c = read_h + weight * h, read_c + weight * c
            summary = read_h
            i, f, g, o = (layer.W.weight @ x[row, t] + layer.U @ read_h + layer.W.bias).chunk(4)
            c = torch.sigmoid(f) * read_c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            tape_h.append(h)
            tape_c.append(c)
            ys[t] = h
        rows.append(torch.stack(ys))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    layer = mixers.create("lstmn", 5, d_score=6).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.5)
    x, lengths = torch.randn(3, 9, 5, dtype=torch.float64, requires_grad=True), [9, 1, 4]
    y = zero_pads(layer(x, None, torch.tensor(lengths))[0], torch.tensor(lengths))
    wanted = loop(layer, x, lengths)
    yield "output", y, wanted
    weight, named = torch.randn_like(y), dict(x=x, **dict(layer.named_parameters()))
    mine, right = (torch.autograd.grad((out * weight).sum(), list(named.values())) for out in (y, wanted))
    for name, a, b in zip(named, mine, right, strict=True):
        yield f"gradient of {name}", a, b
