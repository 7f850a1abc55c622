"""Equations 2-9 of Graves et al. 2014 in a plain loop, head by head and slot by slot, the controller torch's LSTM cell;
two heads that read, two that write."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from oracles import against_loop

SLOTS, WIDTH = 6, 3


def weigh(memory: Tensor, before: Tensor, key: Tensor, rest: Tensor) -> Tensor:
    beta, gamma = torch.log(1 + rest[0].exp()), 1 + torch.log(1 + rest[2].exp())
    match = torch.stack([key @ row / (key.norm() * row.norm()) for row in memory])
    by_content = (beta * match).exp() / (beta * match).exp().sum()
    g = torch.sigmoid(rest[1])
    gated = g * by_content + (1 - g) * before
    s = torch.softmax(rest[3:], 0)
    moved = torch.stack([sum(s[j + 1] * gated[(i - j) % SLOTS] for j in (-1, 0, 1)) for i in range(SLOTS)])
    return moved**gamma / (moved**gamma).sum()


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("ntm", 5, slots=SLOTS, d_slot=WIDTH, n_heads=2).double()
    controller = nn.LSTMCell(20, 5).double()

    def loop(x: Tensor) -> Tensor:
        h, c = torch.zeros(1, 5).double(), torch.zeros(1, 5).double()
        memory, reads = ours.memory, torch.zeros(2 * WIDTH).double()
        weights = [torch.eye(SLOTS).double()[0]] * 4
        ys = []
        for x_t in x:
            gates = (ours.W @ x_t + ours.b + ours.R @ reads)[None]
            h, c = torch.func.functional_call(
                controller,
                {"weight_ih": torch.eye(20).double(), "weight_hh": ours.U,
                 "bias_ih": torch.zeros(20).double(), "bias_hh": torch.zeros(20).double()},
                (gates, (h, c)),
            )  # fmt: skip
            told = ours.heads.weight @ h[0] + ours.heads.bias
            keys, rests, erases, adds = told.split([4 * WIDTH, 4 * 6, 2 * WIDTH, 2 * WIDTH])
            weights = [weigh(memory, *each) for each in zip(weights, keys.split(WIDTH), rests.split(6), strict=True)]
            rows = []
            for i in range(SLOTS):
                row = memory[i]
                for w, erase in zip(weights[2:], erases.split(WIDTH), strict=True):
                    row = row * (1 - w[i] * torch.sigmoid(erase))
                for w, add in zip(weights[2:], adds.split(WIDTH), strict=True):
                    row = row + w[i] * add
                rows.append(row)
            memory = torch.stack(rows)
            reads = torch.cat([sum(w[i] * memory[i] for i in range(SLOTS)) for w in weights[:2]])
            ys.append(ours.out.weight @ torch.cat([h[0], reads]) + ours.out.bias)
        return torch.stack(ys)

    yield from against_loop(ours, loop)
