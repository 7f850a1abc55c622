"""RNN: a hidden state that is rewritten at every token, as a function of itself and the token.

Recurrence:
    h_t = f(W x_t + U h_{t-1} + b), f = tanh or relu

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d^2); state d numbers.

Paper: Elman 1990, "Finding structure in time"; the rectified one, Le, Jaitly and Hinton 2015.

Deviations: one bias instead of torch's two (their sum); no output layer, the hidden state is the output.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.mixer import Mixer
from longwave.ops.linear import linear
from longwave.ops.scan import scan
from longwave.state import State


class Hidden(State):
    h: Float[Tensor, "B D"]


class RNN(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        activation: Literal["tanh", "relu"] = "tanh",  # what bounds, or only rectifies, the hidden state
    ) -> None:
        super().__init__()
        self.activation = torch.tanh if activation == "tanh" else torch.relu
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(d_model))

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, len(self.U)))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        def cell(wx: Tensor, old: Hidden) -> tuple[Tensor, Hidden]:
            h = self.activation(wx + F.linear(old.h, self.U))
            return h, Hidden(h)

        return scan(cell, linear(x, self.W, self.b), state or self.init_state(len(x)), lengths)
