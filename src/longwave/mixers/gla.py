"""Gated linear attention: linear attention whose matrix state forgets, channel by channel, as the token says.

Recurrence:
    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t        a_t = s(W2 W1 x_t + b)^(1/16)

Parallel form: chunks, with decays inside a chunk as sums of logarithms (see ops.linear_recurrence).

Cost: training O(T d^2 / h) in chunks; a decoded token O(d^2 / h); state d^2 / (2 h) numbers for h heads.

Paper: Yang et al. 2024, "Gated linear attention transformers with hardware-efficient training", section 4, eq. 3 and
4.4.

Deviations: none in the layer; keys are half as wide as values, heads are normed and gated by swish, as there.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.parts.linear import Linear
from longwave.parts.norm import RMSNorm
from longwave.state import State


class Matrix(State):
    S: Float[Tensor, "B H K V"]


class GLA(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with a state of its own
        expand_k: float = 0.5,  # width of all keys together, in units of d_model
        expand_v: float = 1.0,  # width of all values together, in units of d_model
        gate_rank: int = 16,  # rank of the projection that makes the decays
        gate_temper: float = 16.0,  # the decay is a logistic to the power of 1 / this: slow forgetting at the start
    ) -> None:
        super().__init__()
        d_k, d_v = int(d_model * expand_k), int(d_model * expand_v)
        check_divides("n_heads", n_heads, "d_model * expand_k", d_k)
        check_divides("n_heads", n_heads, "d_model * expand_v", d_v)
        self.n_heads, self.d_k, self.d_v, self.gate_temper = n_heads, d_k, d_v, gate_temper
        self.qkvg = Linear(d_model, 2 * d_k + 2 * d_v, bias=False)
        self.decay = nn.Sequential(Linear(d_model, gate_rank, bias=False), Linear(gate_rank, d_k))
        self.norm = RMSNorm(d_v // n_heads)
        self.out = Linear(d_v, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Matrix:
        return Matrix(self.zeros(batch, self.n_heads, self.d_k // self.n_heads, self.d_v // self.n_heads, wide=True))

    def forward(
        self, x: Tensor, state: Matrix | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Matrix | None]:
        q, k, v, g = self.qkvg(x).split([self.d_k, self.d_k, self.d_v, self.d_v], -1)
        log_decay = F.logsigmoid(self.decay(x)) / self.gate_temper
        q, k, v, log_decay = (t.unflatten(-1, (self.n_heads, -1)) for t in (q, k, v, log_decay))
        q = q * q.shape[-1] ** -0.5
        y, S = linear_recurrence(q, k, v, log_decay, None if state is None else state.S, lengths)
        y = self.norm(y).flatten(2) * F.silu(g)
        return self.out(y), None if S is None else Matrix(S)
