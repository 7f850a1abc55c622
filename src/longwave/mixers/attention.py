"""Softmax attention: a token looks up the values of earlier tokens by the match of its query with their keys.

Recurrence (the state is every key and value so far, or a window's worth):
    K_t, V_t = K_{t-1} + k_t, V_{t-1} + v_t        y_t = sum_s softmax_s(score(q_t, k_s) / temperature) v_s

    score(q, k) = q . k / sqrt(d)        dot: q . k        bilinear: q W k        additive: w . tanh(q + k)

Parallel form:
    Y = softmax(Q K^T / sqrt(d) + mask) V

Cost: training O(T^2 d), with a window O(T w d); a decoded token O(t d), O(w d); state 2 t d numbers, 2 w d.

Paper: Vaswani et al. 2017, section 3.2, eq. 1; grouped heads, Ainslie et al. 2023; rotary positions, Su et al. 2021;
ALiBi, Press et al. 2022; a bias for buckets of distances, Raffel et al. 2020; windows, Child et al. 2019 and Beltagy et
al. 2020; bilinear scores, Luong et al. 2015; additive ones, Bahdanau et al. 2015.

Deviations: rotary channels are paired (i, i + d/2), as in Llama; queries, keys and values come from one product.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.parts.cache import KV, Ring
from longwave.parts.linear import Linear
from longwave.parts.position import alibi_slopes, check_scaling, rotate
from longwave.parts.score import additive
from longwave.spec import Spec

BUCKETS = 32  # of the learned bias


class Attention(Mixer):
    work = "quadratic"

    slopes: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with its own queries
        n_kv_heads: int | None = None,  # heads of keys and values; None: n_heads, fewer: grouped-query, 1: multi-query
        d_key: int | None = None,  # width of a head's queries and keys; None: d_model / n_heads
        d_value: int | None = None,  # width of a head's values; None: that of its keys
        score: Literal["scaled_dot", "dot", "bilinear", "additive"] = "scaled_dot",  # how a query and a key match
        temperature: float = 1.0,  # scores are divided by it: below 1 sharper, above 1 flatter
        window: int | None = None,  # see only this many tokens back (itself included)
        block: int | None = None,  # or cut time into blocks of so many tokens: see one's own and the one before it
        causal: bool = True,  # False: see the whole sequence, for encoders
        position: Literal["rope", "alibi", "t5", "none"] = "rope",  # how the distance of two tokens enters
        rope_base: float = 10000.0,  # the longest rotary wavelength is 2 pi times this
        rope_scaling: Spec | None = None,  # for longer sequences than trained on: linear, ntk, yarn or llama3
        bias: bool = False,  # biases in the projections
        bias_out: bool | None = None,  # in that of the output; None: as bias
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        if d_key is None:
            check_divides("n_heads", n_heads, "d_model", d_model)
        n_kv_heads = n_kv_heads or n_heads
        d_key = d_key or d_model // n_heads
        d_value = d_value or d_key
        check_divides("n_kv_heads", n_kv_heads, "n_heads", n_heads)
        if block is not None and window is not None:
            raise UserError(f"window={window} and block={block} both say what is near: give one of them")
        window = 2 * block if block is not None else window
        check_positive(window=1 if window is None else window, temperature=temperature)
        check_scaling(rope_scaling)
        self.causal, self.window, self.block, self.position = causal, window, block, position
        self.rope_base, self.rope_scaling, self.dropout = rope_base, rope_scaling, dropout
        self.growth = "linear" if window is None else "window"
        self.n_heads, self.n_kv_heads, self.d_key, self.d_value = n_heads, n_kv_heads, d_key, d_value
        self.score, self.scale = score, (d_key**-0.5 if score == "scaled_dot" else 1.0) / temperature
        self.qkv = Linear(d_model, (n_heads + n_kv_heads) * d_key + n_kv_heads * d_value, bias=bias)
        self.out = Linear(n_heads * d_value, d_model, bias=bias if bias_out is None else bias_out)
        hint(self.out, "weight", residual=True)
        if score == "bilinear":
            self.form = nn.Parameter(torch.eye(d_key).repeat(n_heads, 1, 1) / math.sqrt(d_key))
        if score == "additive":
            self.form = nn.Parameter(torch.randn(n_heads, d_key) / math.sqrt(d_key))
        if position == "alibi":
            self.register_buffer("slopes", alibi_slopes(n_heads))
        if position == "t5":
            self.table = nn.Parameter(torch.zeros(n_heads, BUCKETS))
            hint(self, "table", decay=False)

    def init_state(self, batch: int, capacity: int | None = None) -> KV | Ring:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        slots = self.window if self.window is not None else capacity or 0
        k, v = (self.zeros(batch, slots, self.n_kv_heads, width) for width in (self.d_key, self.d_value))
        n = self.zeros(batch, dtype=torch.long)
        return KV(k, v, n, capacity is not None) if self.window is None else Ring(k, v, n)

    def forward(
        self, x: Tensor, state: KV | Ring | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, KV | Ring | None]:
        qk, v = self.qkv(x).split([(self.n_heads + self.n_kv_heads) * self.d_key, self.n_kv_heads * self.d_value], -1)
        qk, v = qk.unflatten(-1, (-1, self.d_key)), v.unflatten(-1, (-1, self.d_value))
        if self.score == "bilinear":
            q, k = qk.split([self.n_heads, self.n_kv_heads], 2)
            qk = torch.cat([torch.einsum("bthk,hkj->bthj", q, self.form), k], 2)
        pos = torch.arange(x.shape[1], device=x.device)[None]
        if state is not None:
            pos = state.n[:, None] + pos
        if self.position == "rope":
            qk = rotate(qk, pos, self.rope_base, self.rope_scaling)
        q, k = qk.split([self.n_heads, self.n_kv_heads], 2)
        if state is not None:
            new, k, v, at, aligned = state.extend(k, v, lengths)
            return self._look_up(q, k, v, pos, at, aligned), new
        if lengths is not None and not self.causal:
            return self._look_up(q, k, v, pos, torch.where(pos < lengths[:, None], pos, -1), True), None
        return self._look_up(q, k, v), None

    def _look_up(
        self, q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor | None = None, k_pos: Tensor | None = None,
        aligned: bool = False,
    ) -> Tensor:  # fmt: skip
        pattern = Pattern(
            self.causal, self.window, aligned=aligned, block=self.block, around=0 if self.block is None else 1,
            slopes=self.slopes if self.position == "alibi" else None,
            table=self.table if self.position == "t5" else None,
        )  # fmt: skip
        how: dict[str, Any] = dict(scale=self.scale, dropout=self.dropout if self.training else 0.0)
        if self.score == "additive":
            how["score"] = additive(self.form)
        return self.out(attention(q, k.to(q), v.to(q), pattern, q_pos, k_pos, **how).flatten(2))
