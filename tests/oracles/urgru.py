"""The refined gate of Gu et al. 2020 in a plain GRU loop, a row and a step at a time; torch.nn.GRU where it is off."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def loop(x: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Rows of h, zero behind each row's end, and the last h."""
    d = x.shape[2]
    rows, hs = [], []
    for row, length in enumerate(lengths):
        h = torch.zeros(d, dtype=x.dtype)
        ys = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(length):
            from_x = (W @ x[row, t] + b).split(d)
            from_h = (U @ h).split(d)
            reset, f, r = (s(from_x[i] + from_h[i]) for i in (0, 1, 3))
            g = r * (1 - (1 - f) * (1 - f)) + (1 - r) * f * f
            h = g * h + (1 - g) * torch.tanh(from_x[2] + reset * (from_h[2] + b_n))
            ys[t] = h
        rows.append(torch.stack(ys))
        hs.append(h)
    return torch.stack(rows), torch.stack(hs)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 5, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    weight = torch.randn(3, 9, 5, dtype=torch.float64)

    ours = mixers.create("urgru", 5).double()
    nn.init.normal_(ours.b_n)
    y, state = ours(x, ours.init_state(3), lengths)
    wanted, h = loop(x, ours.W, ours.U, ours.b, ours.b_n, lengths.tolist())
    yield from _compared("", ours, x, zero_pads(y, lengths), state, wanted, h, weight)

    ours = mixers.create("urgru", 5, refine=False, uniform=False).double()
    theirs = nn.GRU(5, 5, batch_first=True).double()
    theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0 = ours.W, ours.U, ours.b
    nn.init.zeros_(theirs.bias_hh_l0)
    y, state = ours(x, ours.init_state(3), lengths)
    packed, h = theirs(pack_padded_sequence(x, lengths, batch_first=True))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    yield from _compared(", all off", ours, x, zero_pads(y, lengths), state, wanted, h[0], weight)


def _compared(which, ours, x, y, state, wanted, h, weight) -> Iterator[tuple[str, Tensor, Tensor]]:
    yield f"output{which}", y, wanted
    yield f"h{which}", state.h, h
    inputs = [x, ours.W, ours.U, ours.b]
    mine = torch.autograd.grad((y * weight).sum(), inputs)
    right = torch.autograd.grad((wanted * weight).sum(), inputs)
    for name, a, b in zip(("x", "W", "U", "b"), mine, right, strict=True):
        yield f"gradient of {name}{which}", a, b
