"""RWKV-4's time mix: an average of all past values, weighted by the exponential of their keys, older ones less.
Recurrence (a channel; x' = mu x_t + (1 - mu) x_{t-1}, with a mu for each of k, v, r):
    k, v, r = W_k x', W_v x', s(W_r x')
    wkv_t = (A + e^(u + k) v) / (B + e^(u + k))        A = e^w A + e^k v        B = e^w B + e^k        w = -exp(decay)
    out = W (r wkv)

Parallel form: the sums are linear in A and B, so a scan of any grouping (see ops.wkv).

Cost: training and a decoded token O(d^2); state 4 d numbers.

Paper: Peng et al. 2023, "RWKV: reinventing RNNs for the transformer era", section 3.1, eq. 11-16, and appendix E
(where decays, bonuses and mixing start).

Deviations: matrices start as the backbone starts them, not at zero; `depth` stands for both of the authors' ratios of
depth. `channel_mix` belongs beside it.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.ragged import previous
from longwave.ops.wkv import wkv
from longwave.parts.linear import Linear
from longwave.state import State


class Average(State):
    last: Float[Tensor, "B D"]
    A: Float[Tensor, "B D"]
    B: Float[Tensor, "B D"]
    m: Float[Tensor, "B D"]  # A and B are in units of e^m


class RWKV4(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        depth: float = 0.0,  # how deep it stands, from 0 to 1: decays and mixing start accordingly
    ) -> None:
        super().__init__()
        channel = torch.arange(d_model)
        start = (channel / d_model)[None] ** (torch.tensor([[1.0], [1.0], [0.5]]) * (1 - depth))
        self.mu = nn.Parameter(start + depth * torch.tensor([[0], [0.3], [0]]))
        self.decay = nn.Parameter(-5 + 8 * (channel / max(1, d_model - 1)) ** (0.7 + 1.3 * depth))
        self.bonus = nn.Parameter(math.log(0.3) + 0.5 * ((channel + 1) % 3 - 1))
        self.k, self.v, self.r, self.out = (Linear(d_model, d_model, bias=False) for _ in range(4))
        hint(self, "mu", decay=False, own_init=True)
        for name in ("decay", "bonus"):
            hint(self, name, decay=False, float32=True, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Average:
        d = len(self.decay)
        A, B, m = (self.zeros(batch, d, wide=True) for _ in range(3))
        return Average(self.zeros(batch, d), A, B, m - torch.inf)

    def forward(
        self, x: Tensor, state: Average | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Average | None]:
        before, last = previous(x, None if state is None else state.last, lengths)
        xk, xv, xr = (torch.lerp(before, x, mu) for mu in self.mu)
        sums = None if state is None else (state.A, state.B, state.m)
        y, sums = wkv(self.k(xk), self.v(xv), -self.decay.exp(), self.bonus, sums, lengths)
        y = self.out(torch.sigmoid(self.r(xr)) * y)
        return y, None if last is None or sums is None else Average(last, *sums)
