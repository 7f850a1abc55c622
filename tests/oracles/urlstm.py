"""The equations of Gu et al. 2020 in a plain loop, a row and a step at a time; torch.nn.LSTM where all is off."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def loop(x: Tensor, W: Tensor, U: Tensor, b: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of h, zero behind each row's end, and the last h and c."""
    d = x.shape[2]
    rows, hs, cs = [], [], []
    for row, length in enumerate(lengths):
        h = c = torch.zeros(d, dtype=x.dtype)
        ys = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(length):
            f, u, o, r = (W[i * d : (i + 1) * d] @ x[row, t] + U[i * d : (i + 1) * d] @ h + b[i * d : (i + 1) * d]
                          for i in range(4))  # fmt: skip
            f, r = s(f), s(r)
            g = r * (1 - (1 - f) * (1 - f)) + (1 - r) * f * f
            c = g * c + (1 - g) * torch.tanh(u)
            h = s(o) * torch.tanh(c)
            ys[t] = h
        rows.append(torch.stack(ys))
        hs.append(h)
        cs.append(c)
    return torch.stack(rows), torch.stack(hs), torch.stack(cs)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 5, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    weight = torch.randn(3, 9, 5, dtype=torch.float64)

    ours = mixers.create("urlstm", 5).double()
    y, state = ours(x, ours.init_state(3), lengths)
    wanted, h, c = loop(x, ours.W, ours.U, ours.b, lengths.tolist())
    yield from _compared("", ours, x, zero_pads(y, lengths), state, wanted, h, c, weight)

    ours = mixers.create("urlstm", 5, refine=False, uniform=False, tied=False).double()
    theirs = nn.LSTM(5, 5, batch_first=True).double()
    theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0 = ours.W, ours.U, ours.b
    nn.init.zeros_(theirs.bias_hh_l0)
    y, state = ours(x, ours.init_state(3), lengths)
    packed, (h, c) = theirs(pack_padded_sequence(x, lengths, batch_first=True))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    yield from _compared(", all off", ours, x, zero_pads(y, lengths), state, wanted, h[0], c[0], weight)


def _compared(which, ours, x, y, state, wanted, h, c, weight) -> Iterator[tuple[str, Tensor, Tensor]]:
    yield f"output{which}", y, wanted
    yield f"h{which}", state.h, h
    yield f"c{which}", state.c, c
    inputs = [x, ours.W, ours.U, ours.b]
    mine = torch.autograd.grad((y * weight).sum(), inputs)
    right = torch.autograd.grad((wanted * weight).sum(), inputs)
    for name, a, b in zip(("x", "W", "U", "b"), mine, right, strict=True):
        yield f"gradient of {name}{which}", a, b
