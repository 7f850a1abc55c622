"""Gated DeltaNet: a matrix state that forgets as the token says, then corrects what it holds under the token's key.
Recurrence (a head; q, k, v = silu of short causal convolutions of projections of x, q and k of length 1):
    w = exp(-exp(A) softplus(a_t + b))        beta = s(b_t)        a, b: projections of x
    S_t = w (1 - beta k k^T) S_{t-1} + beta k v^T        y_t = S_t^T q / sqrt(d_k)
    out = W (norm(y) silu(z))

Parallel form: chunks; inside one, a triangular system (see ops.delta_rule).

Cost: training O(T d^2 / h) in chunks; a decoded token O(d^2); state 9/8 d^2 / h + 3 (W - 1) d numbers for h heads and
W taps.

Paper: Yang et al. 2024, "Gated delta networks: improving Mamba2 with delta rule", section 3, eq. 10, and Figure 1.

Deviations: none; the step of the decay starts like Mamba-2's, as in the authors' code.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import UserError, check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.delta_rule import delta_rule
from longwave.ops.precision import wide
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear
from longwave.parts.norm import RMSNorm, unit
from longwave.parts.step import softplus_steps
from longwave.state import State


class Corrected(State):
    window: Float[Tensor, "B M D"]
    S: Float[Tensor, "B H K V"]


class GatedDeltaNet(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 2,  # heads, each with a state of its own
        expand_k: float = 0.75,  # width of all keys together, in units of d_model
        expand_v: float = 1.5,  # width of all values together, in units of d_model
        d_conv: int = 4,  # taps of the short convolutions
        dt_min: float = 1e-3,  # the least step of the decay at the start
        dt_max: float = 1e-1,  # and the largest
    ) -> None:
        super().__init__()
        d_k, d_v = int(d_model * expand_k), int(d_model * expand_v)
        check_divides("n_heads", n_heads, "d_model * expand_k", d_k)
        check_divides("n_heads", n_heads, "d_model * expand_v", d_v)
        if d_k <= n_heads:
            raise UserError(f"a key of one channel has no direction: n_heads must be below {d_k}, got {n_heads}")
        self.n_heads, self.split = n_heads, [d_k, d_k, d_v]
        self.qkvz = Linear(d_model, 2 * d_k + 2 * d_v, bias=False)
        self.decay_rate = Linear(d_model, 2 * n_heads, bias=False)
        bound = d_conv**-0.5
        self.conv = nn.Parameter(torch.empty(2 * d_k + d_v, d_conv).uniform_(-bound, bound))
        self.log_A = nn.Parameter(torch.empty(n_heads).uniform_(1, 16).log())
        self.dt = nn.Parameter(softplus_steps(n_heads, dt_min, dt_max))
        self.norm = RMSNorm(d_v // n_heads, eps=1e-6)
        self.out = Linear(d_v, d_model, bias=False)
        hint(self, "conv", own_init=True)
        hint(self, "log_A", decay=False, float32=True)
        hint(self, "dt", decay=False, float32=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Corrected:
        d_k, _, d_v = self.split
        S = self.zeros(batch, self.n_heads, d_k // self.n_heads, d_v // self.n_heads, wide=True)
        return Corrected(self.zeros(batch, self.conv.shape[1] - 1, self.conv.shape[0]), S)

    def forward(
        self, x: Tensor, state: Corrected | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Corrected | None]:
        window, S = (None, None) if state is None else (state.window, state.S)
        qkv, z = self.qkvz(x).split([len(self.conv), self.split[-1]], -1)
        qkv, window = short_conv(qkv, self.conv, None, window, lengths, "silu")
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)) for t in qkv.split(self.split, -1))
        q, k = unit(q, 1e-6) * q.shape[-1] ** -0.5, unit(k, 1e-6)
        a, b = wide(self.decay_rate(x)).chunk(2, -1)
        log_decay = -self.log_A.exp() * F.softplus(a + self.dt)
        beta = torch.sigmoid(b)[..., None]
        y, S = delta_rule(q, beta * k, v, k, -log_decay.exp()[..., None] * beta * k, log_decay, S, lengths)
        y = self.norm(y).flatten(2) * F.silu(z)
        return self.out(y), None if window is None or S is None else Corrected(window, S)
