"""Hawk: a real-gated linear recurrent unit behind a short convolution, beside a gate made from the input.
Recurrence:
    u = short causal convolution of W_u x        r, i = s(G_r u + b_r), s(G_i u + b_i)        G: a block a head
    log a = -8 r softplus(p)        h_t = a h_{t-1} + sqrt(1 - a^2) (i u)        y = W (h gelu(W_g x))

Parallel form: the recurrence is linear in h, so a scan of any grouping (see ops.scan).

Cost: training and a decoded token O(d^2); state d W numbers for W taps.

Paper: De et al. 2024, "Griffin: mixing gated linear recurrences with local attention for efficient language models",
sections 2.3 and 2.4, eq. 1-4, and appendix A.

Deviations: none; the first token's input is scaled like every other's, where RecurrentGemma's code leaves it as it is.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear
from longwave.state import State


class Recent(State):
    window: Float[Tensor, "B M D"]
    h: Float[Tensor, "B D"]


class Hawk(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # blocks of the gates' matrices
        d_conv: int = 4,  # taps of the short convolution
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(d_conv=d_conv)
        self.project = Linear(d_model, 2 * d_model)
        bound = d_conv**-0.5
        self.conv = nn.Parameter(torch.empty(d_model, d_conv).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.zeros(d_model))
        width = d_model // n_heads
        self.gates = nn.Parameter(torch.randn(2, n_heads, width, width) * width**-0.5)
        self.gates_bias = nn.Parameter(torch.zeros(2, d_model))
        kept = torch.rand(d_model) * 0.099 + 0.9  # a, where its gate is open: from 0.9 to 0.999
        self.p = nn.Parameter(torch.expm1(-kept.log() / 8).log())
        self.out = Linear(d_model, d_model)
        hint(self, "conv", own_init=True)
        hint(self, "gates_bias", decay=False)
        hint(self, "p", decay=False, float32=True, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Recent:
        d, taps = self.conv.shape
        return Recent(self.zeros(batch, taps - 1, d), self.zeros(batch, d, wide=True))

    def forward(
        self, x: Tensor, state: Recent | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Recent | None]:
        window, h = (None, None) if state is None else (state.window, state.h)
        u, gate = self.project(x).chunk(2, -1)
        u, window = short_conv(u, self.conv, self.conv_bias, window, lengths)
        heads = u.unflatten(-1, (self.gates.shape[1], -1))
        opened = torch.einsum("bthk,ghkj->gbthj", heads, self.gates).flatten(-2) + self.gates_bias[:, None, None]
        r, i = torch.sigmoid(wide(opened))
        log_a = -8 * F.softplus(self.p) * r
        scale = torch.sqrt((-torch.expm1(2 * log_a)).clamp_min(torch.finfo(log_a.dtype).tiny))
        y, h = linear_scan(log_a.exp(), scale * i * u, h, lengths)
        y = self.out(y.to(x.dtype) * F.gelu(gate, approximate="tanh"))
        return y, None if window is None or h is None else Recent(window, h)
