"""Luna: attention in two steps: a few learned queries pack the sequence, then every token looks up what they packed.

Recurrence (causal; P are the p learned queries, t counts from 1):
    a_t = phi(P W_p x_t / sqrt(d))        phi = elu + 1
    A_t = A_{t-1} + k_t a_t^T             w_t = softmax(A_t^T q_t / (t sqrt(d)))
    V_t = V_{t-1} + a_t v_t^T             y_t = V_t^T w_t / t

Parallel form: two linear recurrences in chunks; not causal,
    packed = softmax(P (X W_p)^T / sqrt(d)) X W_v        Y = softmax(Q (packed W_k)^T / sqrt(d)) packed W_u

Cost: training O(T p d); a decoded token O(p d); state 2 p d numbers.

Paper: Ma et al. 2021, "Luna: linear unified nested attention", sections 3.1 (pack, unpack) and 3.3 (causal).

Deviations: P belongs to the layer; in the paper the packed sequence is handed on as the next layer's P. Its product
with a query projection is learned as one. Keys and values are projected apart (the published code may tie them).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.attention import Pattern, attention
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.parts.features import elu_plus_one
from longwave.parts.linear import Linear
from longwave.state import State


class Packed(State):
    A: Float[Tensor, "B H K P"]
    V: Float[Tensor, "B H P V"]
    n: Int[Tensor, " B"]


class Luna(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        packed: int = 256,  # learned queries, the length of the packed sequence
        causal: bool = True,  # False: see the whole sequence
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(packed=packed)
        self.n_heads, self.causal, self.d_head = n_heads, causal, d_model // n_heads
        self.queries = nn.Parameter(torch.randn(packed, n_heads, self.d_head))
        self.project = Linear(d_model, (4 if causal else 3) * d_model, bias=False)
        self.unpack = None if causal else Linear(d_model, 2 * d_model, bias=False)
        self.out = Linear(d_model, d_model, bias=False)
        hint(self, "queries", own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Packed:
        p, H, K = self.queries.shape
        A, V = self.zeros(batch, H, K, p, wide=True), self.zeros(batch, H, p, K, wide=True)
        return Packed(A, V, self.zeros(batch, dtype=torch.long))

    def forward(
        self, x: Tensor, state: Packed | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Packed | None]:
        heads = self.project(x).unflatten(-1, (-1, self.n_heads, self.d_head)).unbind(2)
        if self.causal:
            y, state = self._recur(heads, state, lengths)
        else:
            y = self._pack_and_unpack(heads, lengths)
        return self.out(y.flatten(2)), state

    def _recur(
        self, heads: tuple[Tensor, ...], old: Packed | None, lengths: Tensor | None
    ) -> tuple[Tensor, Packed | None]:
        q, packs, k, v = heads
        scale = self.d_head**-0.5
        a = elu_plus_one(torch.einsum("phk,bthk->bthp", self.queries * scale, packs))
        step = torch.arange(1, q.shape[1] + 1, device=q.device)[None]
        step = (step if old is None else old.n[:, None] + step)[..., None, None]
        scores, A = linear_recurrence(q * scale / step, k, a, None, None if old is None else old.A, lengths)
        y, V = linear_recurrence(scores.softmax(-1), a, v, None, None if old is None else old.V, lengths)
        new = None if old is None or A is None or V is None else Packed(A, V, old.n + ends(q, lengths))
        return (y / step).to(v.dtype), new

    def _pack_and_unpack(self, heads: tuple[Tensor, ...], lengths: Tensor | None) -> Tensor:
        assert self.unpack is not None
        q, packs, values = heads
        at = torch.arange(q.shape[1], device=q.device)[None]
        seen = at if lengths is None else torch.where(at < lengths[:, None], at, -1)
        asked = self.queries.expand(len(q), -1, -1, -1)
        packed = attention(asked, packs, values, Pattern(causal=False), k_pos=seen)
        k, v = self.unpack(packed.flatten(2)).unflatten(-1, (2, self.n_heads, -1)).unbind(2)
        return attention(q, k, v, Pattern(causal=False))
