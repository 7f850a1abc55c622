"""SRU: an elementwise gated average of projected inputs, with a highway around it; no matrix product is sequential.

Recurrence:
    z, f, r = W x_t;  f = s(f + v c_{t-1} + b), r = s(r + v' c_{t-1} + b')
    c_t = f c_{t-1} + (1 - f) z        h_t = r c_t + (1 - r) a x_t

Parallel form: without v the recurrence is linear in c, so a scan of any grouping (see ops.scan); with it a loop of
elementwise steps.

Cost: training O(T d^2), all of it matrix products; a decoded token O(d^2); state d numbers.

Paper: Lei et al. 2018, "Simple recurrent units for highly parallelizable recurrence", eq. 1-4; a = sqrt(1 + 2 exp(b'))
at the start, section 3.2. Without v, the first version of the paper (2017).

Deviations: v is off unless asked for.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.mixer import Mixer
from longwave.ops.linear import linear
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan, scan
from longwave.state import State


class Average(State):
    c: Float[Tensor, "B D"]


class SRU(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        peephole: bool = False,  # the gates see the past average too (v), which makes training sequential
    ) -> None:
        super().__init__()
        bound = math.sqrt(3 / d_model)
        self.W = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(2 * d_model))
        self.v = nn.Parameter(torch.empty(2 * d_model).uniform_(-bound, bound)) if peephole else None
        self.scale = math.sqrt(3)

    def init_state(self, batch: int) -> Average:
        return Average(self.zeros(batch, self.W.shape[1], wide=True))

    def forward(
        self, x: Tensor, state: Average | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Average | None]:
        d = x.shape[2]
        z, gates = linear(x, self.W).split([d, 2 * d], -1)
        gates = gates + self.b
        v = self.v
        if v is None:
            f, r = torch.sigmoid(gates).chunk(2, -1)
            c, last = linear_scan(f, (1 - f) * z, None if state is None else state.c, lengths)
            new = None if last is None else Average(last)
        else:

            def cell(given: tuple[Tensor, Tensor], old: Average) -> tuple[Tensor, Average]:
                z, gates = given
                f, r = torch.sigmoid(gates + v * old.c.repeat(1, 2)).chunk(2, -1)
                c = f * old.c + (1 - f) * z
                return torch.cat([c, r], -1), Average(c)

            both, new = scan(cell, (wide(z), wide(gates)), state or self.init_state(len(x)), lengths)
            c, r = both.chunk(2, -1)
        return (r * c + (1 - r) * self.scale * x).to(x), new
