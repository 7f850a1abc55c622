"""Graves 2016, eq. 5-13, in a plain loop, around a GRU cell; its ponder cost and that one's gradients."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.record import aux_losses
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("act", 5, max_steps=3, epsilon=0.1, cost=0.5).double()
    nn.init.normal_(ours.halt.weight, std=4)
    taken, pondered = [], []

    def loop(x: Tensor) -> Tensor:
        s, ys = torch.zeros(5).double(), []
        for x_t in x:
            h, p, states = [], [], []
            inner = s
            for n in range(3):
                r, z, c = (ours.mixer.W @ (x_t + (ours.first if n == 0 else 0)) + ours.mixer.b).split(5)
                u_r, u_z, u_c = (ours.mixer.U @ inner).split(5)
                c = torch.tanh(c + torch.sigmoid(r + u_r) * (u_c + ours.mixer.b_n))
                inner = (1 - torch.sigmoid(z + u_z)) * c + torch.sigmoid(z + u_z) * inner
                states.append(inner)
                h.append(torch.sigmoid(ours.halt.weight[0] @ inner + ours.halt.bias[0]))
                if n == 2 or sum(h) >= 0.9:
                    p.append(1 - sum(h[:-1]))
                    break
                p.append(h[-1])
            taken.append(len(p))
            pondered.append(len(p) + p[-1])
            s = sum(share * state for share, state in zip(p, states, strict=True))
            ys.append(s)
        return torch.stack(ys)

    yield from against_loop(ours, loop)
    assert set(taken) == {1, 2, 3}, "tokens should differ in how long they take"

    x = torch.randn(1, 7, 5, dtype=torch.float64, requires_grad=True)
    pondered.clear()
    loop(x[0])
    with aux_losses() as terms:
        ours(x)
    wanted = 0.5 * sum(pondered)
    yield "ponder cost", terms[0].total, wanted
    mine, right = (torch.autograd.grad(cost, [x, *ours.halt.parameters()]) for cost in (terms[0].total, wanted))
    for name, a, b in zip(("x", "w", "b"), mine, right, strict=True):
        yield f"gradient of {name}, of the ponder cost", a, b
