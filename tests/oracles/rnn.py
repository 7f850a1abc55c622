"""torch.nn.RNN with tanh and with relu, on a ragged batch packed by pack_padded_sequence."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 11, 6, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    weight = torch.randn(3, 11, 6, dtype=torch.float64)
    for activation in ("tanh", "relu"):
        ours = mixers.create("rnn", 6, activation=activation).double()
        theirs = nn.RNN(6, 6, nonlinearity=activation, batch_first=True).double()
        with torch.no_grad():
            ours.b.normal_()
            theirs.weight_ih_l0.copy_(ours.W)
            theirs.weight_hh_l0.copy_(ours.U)
            theirs.bias_ih_l0.copy_(ours.b)
            theirs.bias_hh_l0.zero_()
        y, state = ours(x, ours.init_state(3), lengths)
        packed, h = theirs(pack_padded_sequence(x, lengths, batch_first=True))
        wanted, _ = pad_packed_sequence(packed, batch_first=True)
        y = zero_pads(y, lengths)
        yield f"output, {activation}", y, wanted
        yield f"h, {activation}", state.h, h[0]
        mine = torch.autograd.grad((y * weight).sum(), [x, ours.W, ours.U, ours.b])
        weights = [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0]
        right = torch.autograd.grad((wanted * weight).sum(), [x, *weights])
        for name, a, b in zip(("x", "W", "U", "b"), mine, right, strict=True):
            yield f"gradient of {name}, {activation}", a, b
