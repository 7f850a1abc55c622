"""torch.nn.GRU, on a ragged batch packed by pack_padded_sequence."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("gru", 6).double()
    theirs = nn.GRU(6, 6, batch_first=True).double()
    with torch.no_grad():
        ours.b.normal_()
        ours.b_n.normal_()
        theirs.weight_ih_l0.copy_(ours.W)
        theirs.weight_hh_l0.copy_(ours.U)
        theirs.bias_ih_l0.copy_(ours.b)
        theirs.bias_hh_l0.zero_()
        theirs.bias_hh_l0[12:].copy_(ours.b_n)
    x, lengths = torch.randn(3, 11, 6, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    weight = torch.randn(3, 11, 6, dtype=torch.float64)

    y, state = ours(x, ours.init_state(3), lengths)
    packed, h = theirs(pack_padded_sequence(x, lengths, batch_first=True))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    y = zero_pads(y, lengths)
    yield "output", y, wanted
    yield "h", state.h, h[0]
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.W, ours.U, ours.b, ours.b_n])
    weights = [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, theirs.bias_hh_l0]
    dx, dW, dU, db, db_n = torch.autograd.grad((wanted * weight).sum(), [x, *weights])
    for name, a, b in zip(("x", "W", "U", "b", "b_n"), mine, (dx, dW, dU, db, db_n[12:]), strict=True):
        yield f"gradient of {name}", a, b
