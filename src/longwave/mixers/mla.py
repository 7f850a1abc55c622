"""Multi-head latent attention: keys and values of all heads are made from one small latent a token, which is the state.

Recurrence (the state is the latent and one rotary key of every token so far):
    c_t = norm(D x_t)        r_t = rotate(R x_t)        k_s = [U_k c_s, r_s]        v_s = U_v c_s
    y_t = sum_s softmax_s(q_t . k_s / sqrt(d_key + d_rope)) v_s,      q_t = [Q x_t, rotate(Q' x_t)]

Parallel form: expanded, keys and values are made for every head and looked up as usual; absorbed, the query takes U_k
in, (U_k^T q) . c = q . (U_k c), and U_v follows the look-up, which is then among latents. What costs less is taken: the
first where there are many queries, the second where there are few, as in decoding.

Cost: training O(T^2 d), a decoded token O(t n_heads d_latent); state t (d_latent + d_rope) numbers.

Paper: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1, eq. 9 to 19, and appendix B; unchanged in V3.

Deviations: rotary channels are paired (i, i + d/2), as in Llama, not (2i, 2i + 1).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.attention import Pattern, attention
from longwave.parts.linear import Linear
from longwave.parts.norm import RMSNorm
from longwave.parts.position import check_scaling, rotate
from longwave.spec import Spec
from longwave.state import State, write_at


class Latents(State):
    """Latents and rotary keys beside one another, in a buffer that grows by doubling, or of fixed capacity."""

    c: Float[Tensor, "B S R"]
    n: Int[Tensor, " B"]
    fixed: bool = False

    def snapshot(self) -> "Latents":
        return self  # written only at positions >= n


class MLA(Mixer):
    work = "quadratic"
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        d_latent: int | None = None,  # width of the latent; None: 4 d_key
        d_key: int | None = None,  # width of a head's queries and keys without position; None: d_model / n_heads
        d_rope: int | None = None,  # width of the rotary part, whose key all heads share; None: d_key / 2
        d_value: int | None = None,  # width of a head's values; None: d_key
        d_query: int | None = None,  # width of a latent of the queries; None: they have none
        rope_base: float = 10000.0,  # the longest rotary wavelength is 2 pi times this
        rope_scaling: Spec | None = None,  # for longer sequences than trained on: linear, ntk, yarn or llama3
        temperature: float = 1.0,  # scores are divided by it: below 1 sharper, above 1 flatter
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        if d_key is None:
            check_divides("n_heads", n_heads, "d_model", d_model)
        check_scaling(rope_scaling)
        check_positive(temperature=temperature)
        self.n_heads, self.rope_base, self.rope_scaling, self.dropout = n_heads, rope_base, rope_scaling, dropout
        self.d_key = d_key or d_model // n_heads
        self.d_value, self.d_latent = d_value or self.d_key, d_latent or 4 * self.d_key
        self.d_rope = d_rope or max(2, self.d_key // 2)
        self.temperature, self.scale = temperature, (self.d_key + self.d_rope) ** -0.5 / temperature
        width = n_heads * (self.d_key + self.d_rope)
        down = [Linear(d_model, d_query, bias=False), RMSNorm(d_query, eps=1e-6)] if d_query else []
        self.q = nn.Sequential(*down, Linear(d_query or d_model, width, bias=False))
        self.kv_down = Linear(d_model, self.d_latent + self.d_rope, bias=False)
        self.norm = RMSNorm(self.d_latent, eps=1e-6)
        self.kv_up = Linear(self.d_latent, n_heads * (self.d_key + self.d_value), bias=False)
        self.out = Linear(n_heads * self.d_value, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> Latents:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        c = self.zeros(batch, capacity or 0, self.d_latent + self.d_rope)
        return Latents(c, self.zeros(batch, dtype=torch.long), capacity is not None)

    def forward(
        self, x: Tensor, state: Latents | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Latents | None]:
        q, turned = self.q(x).unflatten(-1, (self.n_heads, -1)).split([self.d_key, self.d_rope], -1)
        c, key = self.kv_down(x).split([self.d_latent, self.d_rope], -1)
        pos = torch.arange(x.shape[1], device=x.device)[None]
        if state is not None:
            pos = state.n[:, None] + pos
        turned = rotate(torch.cat([turned, key[:, :, None]], 2), pos, self.rope_base, self.rope_scaling)
        turned, key = turned.split([self.n_heads, 1], 2)
        c = torch.cat([self.norm(c), key[:, :, 0]], -1)
        if state is None:
            return self._look_up(q, turned, c, None, None), None
        held = write_at(state.c, pos, c, fixed=state.fixed)
        at = torch.arange(held.shape[1], device=x.device)[None]
        return self._look_up(q, turned, held.to(x), pos, at), Latents(held, state.n + ends(x, lengths), state.fixed)

    def _look_up(self, q: Tensor, turned: Tensor, c: Tensor, q_pos: Tensor | None, k_pos: Tensor | None) -> Tensor:
        how = (q_pos, k_pos, self.scale, self.dropout if self.training else 0.0)
        both, c_only = self.d_key + self.d_value, c[..., : self.d_latent]
        if q.shape[1] * (2 * self.d_latent - both) < self.d_latent * both:  # absorbed, with fewer multiplications
            up = self.kv_up.weight.unflatten(0, (self.n_heads, -1))
            q = torch.einsum("bthk,hkr->bthr", q, up[:, : self.d_key])
            y = attention(torch.cat([q, turned], -1), c[:, :, None], c_only[:, :, None], Pattern(), *how)
            return self.out(torch.einsum("bthr,hvr->bthv", y, up[:, self.d_key :]).flatten(2))
        k, v = self.kv_up(c_only).unflatten(-1, (self.n_heads, -1)).split([self.d_key, self.d_value], -1)
        shared = c[:, :, None, self.d_latent :].expand(-1, -1, self.n_heads, -1)
        return self.out(
            attention(torch.cat([q, turned], -1), torch.cat([k, shared], -1), v, Pattern(), *how).flatten(2)
        )
