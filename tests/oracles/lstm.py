"""torch.nn.LSTM, on a ragged batch packed by pack_padded_sequence; a context that is handed over is more input."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("lstm", 6).double()
    theirs = nn.LSTM(6, 6, batch_first=True).double()
    with torch.no_grad():
        ours.b.normal_()
        theirs.weight_ih_l0.copy_(ours.W)
        theirs.weight_hh_l0.copy_(ours.U)
        theirs.bias_ih_l0.copy_(ours.b)
        theirs.bias_hh_l0.zero_()
    x, lengths = torch.randn(3, 11, 6, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    weight = torch.randn(3, 11, 6, dtype=torch.float64)

    y, state = ours(x, ours.init_state(3), lengths)
    packed, (h, c) = theirs(pack_padded_sequence(x, lengths, batch_first=True))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    y = zero_pads(y, lengths)
    yield "output", y, wanted
    yield "h", state.h, h[0]
    yield "c", state.c, c[0]
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.W, ours.U, ours.b])
    right = torch.autograd.grad(
        (wanted * weight).sum(), [x, theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0]
    )
    for name, a, b in zip(("x", "W", "U", "b"), mine, right, strict=True):
        yield f"gradient of {name}", a, b

    informed, wide = mixers.create("lstm", 6, d_context=4).double(), nn.LSTM(10, 6, batch_first=True).double()
    with torch.no_grad():
        wide.weight_ih_l0.copy_(torch.cat([informed.W, informed.C], 1))
        wide.weight_hh_l0.copy_(informed.U)
        wide.bias_ih_l0.copy_(informed.b)
        wide.bias_hh_l0.zero_()
    context = torch.randn(3, 11, 4, dtype=torch.float64)
    yield "with a context", informed(x, handed={"context": context})[0], wide(torch.cat([x, context], -1))[0]
