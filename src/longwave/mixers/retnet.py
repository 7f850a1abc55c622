"""Retention: linear attention whose heads forget at fixed rates of their own, with rotary positions.
Recurrence (head i of h; q and k turned by their position):
    S_t = g S_{t-1} + k_t v_t^T        y_t = S_t^T q_t / sqrt(d_k)        g_i = 1 - 2^(-5 - i)
    out = W (norm(y) silu(W' x))

Parallel form:
    Y = (Q K^T * D) V with D_ts = g^(t - s) for s <= t, or the same in chunks (see ops.linear_recurrence)

Cost: training O(T d^2 / h) in chunks; a decoded token O(d^2); state 2 d^2 / h numbers for h heads.

Paper: Sun et al. 2023, "Retentive network: a successor to transformer for large language models", section 2, eq. 5-8.

Deviations: a head is normed by an RMSNorm without gain, as in the authors' code; the normalisers of the parallel form
(section 2.1), which such a norm undoes, are left out. The rotation is in the half-split order.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.precision import wide
from longwave.parts.linear import Linear
from longwave.parts.position import rotate
from longwave.state import State


class Retained(State):
    S: Float[Tensor, "B H K V"]
    n: Int[Tensor, " B"]


class RetNet(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with a rate of forgetting of its own
        expand_v: float = 2.0,  # width of all values together, in units of d_model
    ) -> None:
        super().__init__()
        d_v = int(d_model * expand_v)
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_divides("n_heads", n_heads, "d_model * expand_v", d_v)
        self.n_heads, self.split = n_heads, [d_model, d_model, d_v, d_v]
        self.qkvg = Linear(d_model, sum(self.split), bias=False)
        self.out = Linear(d_v, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Retained:
        d_k, d_v = (self.split[i] // self.n_heads for i in (0, 2))
        return Retained(self.zeros(batch, self.n_heads, d_k, d_v, wide=True), self.zeros(batch, dtype=torch.long))

    def forward(
        self, x: Tensor, state: Retained | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Retained | None]:
        *qkv, g = self.qkvg(x).split(self.split, -1)
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)) for t in qkv)
        start = 0 if state is None else state.n[:, None]
        pos = (start + torch.arange(x.shape[1], device=x.device)).expand(x.shape[0], -1)
        q, k = rotate(q, pos), rotate(k * k.shape[-1] ** -0.5, pos)
        kept = 1 - 2.0 ** (-5.0 - torch.arange(self.n_heads, device=x.device, dtype=torch.float64))
        log_decay = kept.log().to(wide(x)).expand(*x.shape[:2], -1)
        y, S = linear_recurrence(q, k, v, log_decay, None if state is None else state.S, lengths)
        y = F.rms_norm(y, y.shape[-1:], eps=1e-6).flatten(2) * F.silu(g)
        return self.out(y), None if state is None or S is None else Retained(S, state.n + ends(x, lengths))
