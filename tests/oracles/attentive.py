"""torch.nn.LSTM, and Luong et al. 2015, eq. 5 and 7, token by token over its inputs."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("attentive", 6, n_heads=2).double()
    theirs = nn.LSTM(6, 6).double()
    theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0 = ours.mixer.W, ours.mixer.U, ours.mixer.b
    nn.init.zeros_(theirs.bias_hh_l0)

    def loop(x: Tensor) -> Tensor:
        hs, _ = theirs(x)
        keys, values = (x @ ours.kv.weight.T).chunk(2, -1)
        ys = []
        for t, h in enumerate(hs):
            read = []
            for head in (slice(0, 3), slice(3, 6)):
                q = (ours.q.weight @ h)[head]
                a = torch.softmax(torch.stack([q @ keys[s, head] / math.sqrt(3) for s in range(t + 1)]), 0)
                read.append(sum(a[s] * values[s, head] for s in range(t + 1)))
            ys.append(torch.tanh(ours.out.weight @ torch.cat([*read, h])))
        return torch.stack(ys)

    yield from against_loop(ours, loop, width=6)
