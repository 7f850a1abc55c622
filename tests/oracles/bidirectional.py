"""torch.nn.LSTM(bidirectional=True), its two directions added, on a ragged batch."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("bidirectional", 6, mixer="lstm").double()
    theirs = nn.LSTM(6, 6, batch_first=True, bidirectional=True).double()
    of = {}
    for way, suffix in ((ours.ahead, "l0"), (ours.back, "l0_reverse")):
        theirs.register_parameter(f"weight_ih_{suffix}", way.W)
        theirs.register_parameter(f"weight_hh_{suffix}", way.U)
        theirs.register_parameter(f"bias_ih_{suffix}", way.b)
        nn.init.zeros_(getattr(theirs, f"bias_hh_{suffix}"))
        of |= {f"{name}, {suffix}": (p, p) for name, p in (("W", way.W), ("U", way.U), ("b", way.b))}
    x, lengths = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])

    y = zero_pads(ours(x, None, lengths)[0], lengths)
    both, _ = pad_packed_sequence(theirs(pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True)
    wanted = both[..., :6] + both[..., 6:]
    yield "output", y, wanted
    yield from gradients(y, wanted, {"x": (x, x), **of})
