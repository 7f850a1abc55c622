"""Softmax attention: a token looks up the values of earlier tokens by the match of its query with their keys.

Recurrence (the state is every key and value so far, or a window's worth):
    K_t, V_t = K_{t-1} + k_t, V_{t-1} + v_t        y_t = sum_s softmax_s(q_t . k_s / sqrt(d)) v_s

Parallel form:
    Y = softmax(Q K^T / sqrt(d) + mask) V

Cost: training O(T^2 d), with a window O(T w d); a decoded token O(t d), O(w d); state 2 t d numbers, 2 w d.

Paper: Vaswani et al. 2017, section 3.2, eq. 1; grouped heads, Ainslie et al. 2023; rotary positions, Su et al. 2021;
ALiBi, Press et al. 2022; windows, Child et al. 2019 and Beltagy et al. 2020.

Deviations: rotary channels are paired (i, i + d/2), as in Llama; queries, keys and values come from one product.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.attention import Pattern, attention
from longwave.parts.position import alibi_slopes, rotate
from longwave.state import State, may_write, write_at


class KV(State):
    """All keys and values so far, in buffers that grow by doubling, or of fixed capacity."""

    k: Float[Tensor, "B S G K"]
    v: Float[Tensor, "B S G V"]
    n: Int[Tensor, " B"]
    fixed: bool = False

    def snapshot(self) -> "KV":
        return self  # written only at positions >= n


class Ring(State):
    """The keys and values of the last W tokens; position p lies in slot p mod W."""

    k: Float[Tensor, "B W G K"]
    v: Float[Tensor, "B W G V"]
    n: Int[Tensor, " B"]


class Attention(Mixer):
    slopes: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with its own queries
        n_kv_heads: int | None = None,  # heads of keys and values; None: n_heads, fewer: grouped-query, 1: multi-query
        d_head: int | None = None,  # width of a head; None: d_model / n_heads
        window: int | None = None,  # see only this many tokens back (itself included)
        causal: bool = True,  # False: see the whole sequence, for encoders
        position: Literal["rope", "alibi", "none"] = "rope",  # how the distance of two tokens enters
        rope_base: float = 10000.0,  # the longest rotary wavelength is 2 pi times this
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        if d_head is None:
            check_divides("n_heads", n_heads, "d_model", d_model)
        n_kv_heads = n_kv_heads or n_heads
        check_divides("n_kv_heads", n_kv_heads, "n_heads", n_heads)
        check_positive(window=1 if window is None else window)
        self.causal, self.window, self.position, self.rope_base = causal, window, position, rope_base
        self.growth = "linear" if window is None else "window"
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_head or d_model // n_heads
        self.dropout = dropout
        self.qkv = nn.Linear(d_model, (n_heads + 2 * n_kv_heads) * self.d_head, bias=bias)
        self.out = nn.Linear(n_heads * self.d_head, d_model, bias=bias)
        hint(self.out, "weight", residual=True)
        if position == "alibi":
            self.register_buffer("slopes", alibi_slopes(n_heads))

    def init_state(self, batch: int, capacity: int | None = None) -> KV | Ring:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        slots = self.window if self.window is not None else capacity or 0
        k, v = (self.zeros(batch, slots, self.n_kv_heads, self.d_head) for _ in "kv")
        n = self.zeros(batch, dtype=torch.long)
        return KV(k, v, n, capacity is not None) if self.window is None else Ring(k, v, n)

    def forward(
        self, x: Tensor, state: KV | Ring | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, KV | Ring | None]:
        q, k, v = (
            self.qkv(x).unflatten(-1, (-1, self.d_head)).split([self.n_heads, self.n_kv_heads, self.n_kv_heads], 2)
        )
        pos = torch.arange(x.shape[1], device=x.device)[None]
        if state is not None:
            pos = state.n[:, None] + pos
        if self.position == "rope":
            q, k = rotate(q, pos, self.rope_base), rotate(k, pos, self.rope_base)
        new: KV | Ring | None = None
        if state is None:
            y = self._attend(q, k, v, None, None, lengths)
        elif isinstance(state, KV):
            k, v = write_at(state.k, pos, k, fixed=state.fixed), write_at(state.v, pos, v, fixed=state.fixed)
            new = KV(k, v, state.n + ends(x, lengths), state.fixed)
            y = self._attend(q, k, v, pos, torch.arange(k.shape[1], device=x.device)[None])
        else:
            y, new = self._attend_ring(q, k, v, state, state.n + ends(x, lengths))
        return self.out(y.flatten(2)), new

    def _attend(self, q, k, v, q_pos, k_pos, lengths=None, aligned=False):  # type: ignore[no-untyped-def]
        if lengths is not None and not self.causal:
            at = torch.arange(k.shape[1], device=k.device)
            q_pos, k_pos = at[None], torch.where(at < lengths[:, None], at, -1)
            aligned = True
        slopes: Tensor | None = self.slopes if self.position == "alibi" else None
        pattern = Pattern(self.causal, self.window, slopes, aligned)
        return attention(q, k.to(q), v.to(q), pattern, q_pos, k_pos, dropout=self.dropout if self.training else 0.0)

    def _attend_ring(self, q: Tensor, k: Tensor, v: Tensor, ring: Ring, n: Tensor) -> tuple[Tensor, Ring]:
        W, T = ring.k.shape[1], q.shape[1]
        slot = torch.arange(W, device=q.device)
        pos = ring.n[:, None] + torch.arange(T, device=q.device)
        if T == 1 and may_write(ring.k, k):
            rows = torch.nonzero(n > ring.n)[:, 0]
            ring.k[rows, ring.n[rows] % W] = k[rows, 0].to(ring.k)
            ring.v[rows, ring.n[rows] % W] = v[rows, 0].to(ring.v)
            return self._attend(q, ring.k, ring.v, pos, _held(slot, torch.maximum(n, ring.n + 1), W)), Ring(
                ring.k, ring.v, n
            )
        order = ring.n[:, None] + slot  # the ring's positions from the oldest on are order - W
        past = [each.gather(1, (order % W)[..., None, None].expand_as(each)) for each in (ring.k, ring.v)]
        k, v = torch.cat([past[0], k.to(ring.k)], 1), torch.cat([past[1], v.to(ring.v)], 1)
        at = torch.cat([order - W, pos], 1)
        y = self._attend(q, k, v, pos, at, aligned=True)
        index = (_held(slot, n, W) - ring.n[:, None] + W).clamp_min(0)[..., None, None]
        k, v = (each.gather(1, index.expand(-1, -1, *each.shape[2:])) for each in (k, v))
        return y, Ring(k, v, n)


def _held(slot: Tensor, n: Tensor, W: int) -> Tensor:
    """The position in each slot after n tokens: the last before n that is congruent to it; negative where none is."""
    return n[:, None] - 1 - (n[:, None] - 1 - slot) % W
