"""torch.nn.LSTM twice, the one whose states are the output, and the one that reconstructs; every token an anchor."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads
from longwave.record import aux_losses

LENGTHS = [9, 4, 1]


def peer(W: Tensor, U: Tensor, b: Tensor) -> nn.LSTM:
    layer = nn.LSTM(5, 5, batch_first=True).double()
    layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0 = W, U, b
    nn.init.zeros_(layer.bias_hh_l0)
    return layer


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("rlstm", 5, segment=4, rate=1.0, weight=0.7).double()
    forward, back = peer(ours.W, ours.U, ours.b), peer(ours.W_back, ours.U_back, ours.b_back)
    x = torch.randn(3, 9, 5, dtype=torch.float64, requires_grad=True)
    with aux_losses() as terms:
        y, _ = ours(x, None, torch.tensor(LENGTHS))
    rows, lost = [], torch.zeros(())
    for row, length in zip(x, LENGTHS, strict=True):
        states = [(torch.zeros(1, 5).double(), torch.zeros(1, 5).double())]
        ys = []
        for t in range(length):
            y_t, last = forward(row[t : t + 1], states[-1])
            ys.append(y_t)
            states.append(last)
        rows.append(torch.cat([*ys, torch.zeros(9 - length, 5)]))
        for t in range(1, length):
            start = max(0, t - 3)
            _, at_anchor = forward(row[start : t + 1], tuple(s.detach() for s in states[start]))
            guess = ours.guess(back(row[start:t], at_anchor)[0])
            lost = lost + 0.7 * (guess - row[start + 1 : t + 1].detach()).square().mean()
    wanted = torch.stack(rows)
    yield "output", zero_pads(y, torch.tensor(LENGTHS)), wanted
    yield "reconstruction", terms[0].total, lost
    named = dict(ours.named_parameters())
    weight = torch.randn_like(wanted)
    of = [x, *named.values()]
    mine = torch.autograd.grad((zero_pads(y, torch.tensor(LENGTHS)) * weight).sum() + terms[0].total, of)
    right = torch.autograd.grad((wanted * weight).sum() + lost, of)
    for name, a, b in zip(("x", *named), mine, right, strict=True):
        yield f"gradient of {name}", a, b
