"""Mamba: a diagonal state space whose step, input and output depend on the token: it chooses what to remember.
Recurrence (N numbers a channel, on E d channels):
    u, z = W x_t;  u = silu(short causal convolution of u)
    dt, B, C = W' u;  Delta = softplus(W'' dt + b)
    h_t = exp(Delta A) h_{t-1} + Delta B u        y_t = C . h_t + D u        out = W''' (y silu(z))

Parallel form: the recurrence is linear in h, so a scan of any grouping (see ops.selective_scan).

Cost: training O(T E d (N + d)); a decoded token O(E d (N + d)); state E d (N + 3) numbers.

Paper: Gu and Dao 2023, section 3, Algorithm 2 and Figure 3.

Deviations: the input is discretised by Delta B, as in the authors' code, where the text writes zero-order hold.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.selective_scan import selective_scan
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear
from longwave.parts.step import softplus_steps
from longwave.state import State


class Selected(State):
    window: Float[Tensor, "B M D"]
    h: Float[Tensor, "B D N"]


class Mamba(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 16,  # numbers of state a channel
        d_conv: int = 4,  # taps of the short convolution
        expand: int = 2,  # inner channels, in units of d_model
        dt_rank: int | None = None,  # rank of the projection that makes Delta; None: d_model / 16, rounded up
        dt_min: float = 1e-3,  # the least Delta at the start
        dt_max: float = 1e-1,  # and the largest
    ) -> None:
        super().__init__()
        inner, rank = expand * d_model, dt_rank or math.ceil(d_model / 16)
        self.split = [rank, d_state, d_state]
        self.project = Linear(d_model, 2 * inner, bias=False)
        bound = 1 / math.sqrt(d_conv)
        self.conv = nn.Parameter(torch.empty(inner, d_conv).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(inner).uniform_(-bound, bound))
        self.select = Linear(inner, rank + 2 * d_state, bias=False)
        self.dt = Linear(rank, inner)
        steps = softplus_steps(inner, dt_min, dt_max)
        with torch.no_grad():
            self.dt.weight.uniform_(-(rank**-0.5), rank**-0.5)
            self.dt.bias.copy_(steps)
        self.log_A = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out = Linear(inner, d_model, bias=False)
        hint(self, "conv", own_init=True)
        hint(self, "log_A", decay=False, float32=True, own_init=True)
        hint(self, "D", decay=False, float32=True)
        hint(self.dt, "weight", own_init=True)
        hint(self.dt, "bias", decay=False, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Selected:
        inner, taps = self.conv.shape
        return Selected(self.zeros(batch, taps - 1, inner), self.zeros(batch, *self.log_A.shape, wide=True))

    def forward(
        self, x: Tensor, state: Selected | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Selected | None]:
        u, z = self.project(x).chunk(2, -1)
        window, h = (None, None) if state is None else (state.window, state.h)
        u, window = short_conv(u, self.conv, self.conv_bias, window, lengths, "silu")
        dt, B, C = self.select(u).split(self.split, -1)
        y, h = selective_scan(u, self.dt(dt), -self.log_A.exp(), B, C, self.D, z, h, lengths)
        return self.out(y), None if state is None else Selected(window, h)
