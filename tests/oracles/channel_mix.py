"""transformers' RwkvFeedForward with our weights, in float32; without the gate, RWKV-7's three lines."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from oracles.rwkv4 import feed_forward


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    yield from feed_forward()
    ours = mixers.create("channel_mix", 8, gated=False).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    shifted = torch.nn.ZeroPad2d((0, 0, 1, -1))(x) - x
    k = torch.relu((x + shifted * (1 - ours.mu[0])) @ ours.k.weight.T) ** 2
    yield "output without the gate", ours(x)[0], k @ ours.out.weight.T
