"""Performer: softmax attention by random features, whose products are exp(q.k) on average, so that the past is one sum.

Recurrence (m_t is the largest log-feature of a key so far; it cancels, and keeps every sum within range):
    S_t = exp(m_{t-1} - m_t) S_{t-1} + exp(f(k_t) - m_t) (v_t, 1)^T        f(x) = W x - |x|^2 / 2
    y_t, z_t = S_t^T exp(f(q_t))        output y_t / z_t        q and k are divided by K^(1/4) first

Parallel form:
    Y = (phi(Q) phi(K)^T, masked) V, each row divided by its sum; in chunks (see ops.linear_recurrence), O(T) in all

Cost: training O(T M d) for M features; a decoded token O(M d); state M d + M h numbers for h heads.

Paper: Choromanski et al. 2021, "Rethinking attention with Performers", section 2: FAVOR+ with positive
(2.3, lemma 1) and orthogonal (2.4) features and, causal, prefix sums.

Deviations: the stabiliser is a running maximum, where the published code takes one over the whole sequence and adds a
small number to every feature; features are drawn once. Not causal, S is the sum over the row's own tokens.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.parts.features import log_positive_features, orthogonal_directions
from longwave.parts.linear import Linear
from longwave.state import State


class ScaledSums(State):
    S: Float[Tensor, "B H M V"]  # times exp(-m); the last column is the normaliser's
    m: Float[Tensor, "B H"]


class Performer(Mixer):
    directions: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        n_features: int = 128,  # random features of a head
        causal: bool = True,  # False: see the whole sequence
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(n_features=n_features)
        self.n_heads, self.causal = n_heads, causal
        self.qkv = Linear(d_model, 3 * d_model, bias=False)
        self.out = Linear(d_model, d_model, bias=False)
        self.register_buffer("directions", orthogonal_directions(n_features, d_model // n_heads))
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> ScaledSums:
        features, d_head = self.directions.shape
        S = self.zeros(batch, self.n_heads, features, d_head + 1, wide=True)
        return ScaledSums(S, S.new_full((batch, self.n_heads), -torch.inf))

    def forward(
        self, x: Tensor, state: ScaledSums | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, ScaledSums | None]:
        q, k, v = wide(self.qkv(x)).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        q, k = (log_positive_features(t * t.shape[-1] ** -0.25, self.directions) for t in (q, k))
        q = (q - q.detach().amax(-1, keepdim=True)).exp()
        k, v = zero_pads(k, lengths, fill=-torch.inf), F.pad(v, (0, 1), value=1.0)
        new = None
        if self.causal:
            y, new = self._recur(q, k, v, self.init_state(len(x)) if state is None else state, lengths)
        else:
            top = k.detach().amax((1, 3), keepdim=True)
            S = torch.einsum("bthm,bthv->bhmv", (k - _finite(top)).exp(), v)
            y = torch.einsum("bthm,bhmv->bthv", q, S)
        y = y[..., :-1] / y[..., -1:].clamp_min(torch.finfo(y.dtype).tiny)
        return self.out(y.flatten(2).to(x.dtype)), new

    def _recur(
        self, q: Tensor, k: Tensor, v: Tensor, old: ScaledSums, lengths: Tensor | None
    ) -> tuple[Tensor, ScaledSums]:
        m = torch.cat([old.m[:, None].detach(), k.detach().amax(-1)], 1).cummax(1).values
        before, m = m[:, :-1], m[:, 1:]
        decay = torch.where(before.isinf(), 0, before - _finite(m))  # nothing was there to decay
        y, S = linear_recurrence(q, (k - _finite(m)[..., None]).exp(), v, decay, old.S, lengths)
        assert S is not None
        return y, ScaledSums(S, m[:, -1])


def _finite(m: Tensor) -> Tensor:
    """Where no key was seen, any number will do."""
    return m.masked_fill(m.isinf(), 0.0)
