"""torch.nn.LSTM with proj_size, on a ragged batch packed by pack_padded_sequence."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("lstmp", 6, d_cell=10).double()
    theirs = nn.LSTM(6, 10, proj_size=6, batch_first=True).double()
    names = {"W": "weight_ih_l0", "U": "weight_hh_l0", "b": "bias_ih_l0", "out.weight": "weight_hr_l0"}
    with torch.no_grad():
        ours.b.normal_()
        theirs.bias_hh_l0.zero_()
        for mine, right in names.items():
            theirs.get_parameter(right).copy_(ours.get_parameter(mine))
    x, lengths = torch.randn(3, 11, 6, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    weight = torch.randn(3, 11, 6, dtype=torch.float64)

    y, state = ours(x, ours.init_state(3), lengths)
    packed, (h, c) = theirs(pack_padded_sequence(x, lengths, batch_first=True))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    y = zero_pads(y, lengths)
    yield "output", y, wanted
    yield "h", state.h, h[0]
    yield "c", state.c, c[0]
    mine = torch.autograd.grad((y * weight).sum(), [x, *(ours.get_parameter(name) for name in names)])
    right = torch.autograd.grad((wanted * weight).sum(), [x, *(theirs.get_parameter(name) for name in names.values())])
    for name, a, b in zip(("x", *names), mine, right, strict=True):
        yield f"gradient of {name}", a, b
