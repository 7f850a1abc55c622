"""The equations of Zhou et al. 2016 in a loop, a row, a step and a level at a time, over cells of torch.nn."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads


def torchs(ours) -> list[nn.LSTMCell]:
    """Torch's own cells with our recurrent weights; what they are given is f, the gates' share, as it is."""
    cells = []
    for U, b in zip(ours.U, ours.b, strict=True):
        cell = nn.LSTMCell(len(b), U.shape[1]).double()
        del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        cell.weight_ih, cell.weight_hh = torch.eye(len(b), dtype=b.dtype), U
        cell.bias_ih, cell.bias_hh = b, torch.zeros_like(b)
        cells.append(cell)
    return cells


def loop(ours, x: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of y, zero behind each row's end, and the last h and c of every level."""
    d, cells = x.shape[2], torchs(ours)
    ys, lasts = [], []
    for row, T in enumerate(lengths):
        states = [(torch.zeros(1, d, dtype=x.dtype),) * 2 for _ in cells]
        out = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(T):
            f = ours.W[0] @ x[row, t]
            for k, cell in enumerate(cells):
                if k:
                    f = ours.W[k] @ torch.cat([f[: 2 * d], states[k - 1][0][0]])
                states[k] = cell(f[None], states[k])
            out[t] = ours.out.weight @ torch.cat([f, states[-1][0][0]])
        ys.append(torch.stack(out))
        lasts.append([torch.cat(each) for each in zip(*states, strict=True)])
    h, c = (torch.stack(each) for each in zip(*lasts, strict=True))
    return torch.stack(ys), h, c


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for levels in (1, 3):
        ours = mixers.create("fast_forward", 5, levels=levels).double()
        for p in ours.parameters():
            nn.init.normal_(p, std=0.4)
        x, lengths = torch.randn(3, 7, 5, dtype=torch.float64, requires_grad=True), torch.tensor([7, 1, 4])
        y, state = ours(x, ours.init_state(3), lengths)
        y = zero_pads(y, lengths)
        wanted, h, c = loop(ours, x, lengths.tolist())
        yield f"output, {levels} levels", y, wanted
        yield f"h, {levels} levels", state.h, h
        yield f"c, {levels} levels", state.c, c
        weight, named = torch.randn_like(y), dict(x=x, **dict(ours.named_parameters()))
        mine, right = (torch.autograd.grad((out * weight).sum(), list(named.values())) for out in (y, wanted))
        for name, a, b in zip(named, mine, right, strict=True):
            yield f"gradient of {name}, {levels} levels", a, b
