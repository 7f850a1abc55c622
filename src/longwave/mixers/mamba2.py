"""Mamba-2: Mamba with one decay a head, which makes it linear attention that forgets: big states, matrix products.
Recurrence (a state of N x P numbers a head, heads of P channels; B and C shared by the heads of a group):
    z, u, B, C, dt = W x_t;  u, B, C = silu(short causal convolution);  Delta = softplus(dt + b)
    S_t = exp(Delta A) S_{t-1} + Delta B u^T        y_t = S_t^T C + D u        out = W' norm(y silu(z))

Parallel form: linear attention with q = C, k = B, v = Delta u and log-decays Delta A, in chunks (see
ops.linear_recurrence).

Cost: training O(T E d (d + N)); a decoded token O(E d (d + N)); state E d N numbers and the window of the convolution.

Paper: Dao and Gu 2024, "Transformers are SSMs", sections 6 and 7, Figure 6.

Deviations: none.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.precision import wide
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear
from longwave.parts.step import softplus_steps
from longwave.state import State


class Selected2(State):
    window: Float[Tensor, "B M D"]
    S: Float[Tensor, "B H N V"]


class Mamba2(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 64,  # numbers of state a channel
        n_heads: int | None = None,  # heads, each with its own decay; None: of 64 channels, but no fewer than 4
        n_groups: int = 1,  # groups of heads, each with its own B and C
        d_conv: int = 4,  # taps of the short convolution
        expand: int = 2,  # inner channels, in units of d_model
        dt_min: float = 1e-3,  # the least Delta at the start
        dt_max: float = 1e-1,  # and the largest
    ) -> None:
        super().__init__()
        inner = expand * d_model
        heads = max(4, inner // 64) if n_heads is None else n_heads
        check_divides("n_heads", heads, "expand * d_model", inner)
        check_divides("n_groups", n_groups, "n_heads", heads)
        self.n_groups, self.split = n_groups, [inner, n_groups * d_state, n_groups * d_state]
        mixed, bound = sum(self.split), 1 / math.sqrt(d_conv)
        self.project = Linear(d_model, inner + mixed + heads, bias=False)
        self.conv = nn.Parameter(torch.empty(mixed, d_conv).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(mixed).uniform_(-bound, bound))
        self.dt_bias = nn.Parameter(softplus_steps(heads, dt_min, dt_max))
        self.log_A = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.gain = nn.Parameter(torch.ones(inner))
        self.out = Linear(inner, d_model, bias=False)
        hint(self, "conv", own_init=True)
        hint(self, "dt_bias", decay=False, own_init=True)
        hint(self, "log_A", decay=False, float32=True, own_init=True)
        hint(self, "D", decay=False, float32=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Selected2:
        mixed, taps = self.conv.shape
        heads = len(self.D)
        S = self.zeros(batch, heads, self.split[1] // self.n_groups, self.split[0] // heads, wide=True)
        return Selected2(self.zeros(batch, taps - 1, mixed), S)

    def forward(
        self, x: Tensor, state: Selected2 | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Selected2 | None]:
        z, mixed, dt = self.project(x).split([self.split[0], sum(self.split), len(self.D)], -1)
        window, S = (None, None) if state is None else (state.window, state.S)
        mixed, window = short_conv(mixed, self.conv, self.conv_bias, window, lengths, "silu")
        u, B, C = mixed.split(self.split, -1)
        u, B, C = u.unflatten(-1, (len(self.D), -1)), *(t.unflatten(-1, (self.n_groups, -1)) for t in (B, C))
        delta = F.softplus(wide(dt) + self.dt_bias)
        y, S = linear_recurrence(C, B, delta[..., None] * u, -delta * self.log_A.exp(), S, lengths)
        y = (y + self.D[:, None] * u).flatten(2).to(x.dtype) * F.silu(z)
        y = y.unflatten(-1, (self.n_groups, -1))
        y = F.rms_norm(y, y.shape[-1:], eps=1e-5).flatten(2) * self.gain.to(x.dtype)
        return self.out(y), None if state is None else Selected2(window, S)
