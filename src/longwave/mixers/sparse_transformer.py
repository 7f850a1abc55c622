"""Sparse Transformer: half of the heads see what is near, the others a summary of what is far; two layers reach all.

Recurrence (the state is every key and value so far):
    y_t = attend(q_t; k_s, v_s for s <= t in S_t), with l the stride:
    strided     S_t = {t - l ... t}                         and {s: (t - s) mod l = 0}
    fixed       S_t = {s in the same block of l as t}       and {s: s mod l >= l - n_columns}

Parallel form: each pattern is a list of keys for a block of queries.

Cost: training O(T (l + T / l) d), which is O(T^1.5 d) with l about the root of T; a decoded token O((l + t / l) d);
state 2 t d numbers.

Paper: Child et al. 2019, sections 4.2 and 4.3.

Deviations: the two patterns are those of two halves of the heads (one of three ways in section 4.3).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.errors import UserError, check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.ops.block_attention import block_attention
from longwave.parts.cache import KV
from longwave.parts.linear import Linear
from longwave.record import is_recording


class SparseTransformer(Mixer):
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        kind: Literal["strided", "fixed"] = "strided",  # how far tokens are summarised
        n_heads: int = 4,  # heads, half of them for each pattern
        stride: int = 32,  # tokens that are near; far ones are seen one in so many
        n_columns: int = 8,  # fixed: how many of a block's last tokens stand for it
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(stride=stride, n_columns=n_columns)
        if n_heads % 2:
            raise UserError(f"n_heads must be even, for half of them see what is near, got {n_heads}")
        if n_columns > stride:
            raise UserError(f"n_columns={n_columns} of a block of stride={stride} tokens: it could be 1 to {stride}")
        self.kind, self.n_heads, self.stride, self.n_columns, self.dropout = kind, n_heads, stride, n_columns, dropout
        self.qkv = Linear(d_model, 3 * d_model, bias=bias)
        self.out = Linear(d_model, d_model, bias=bias)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> KV:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        k, v = (self.zeros(batch, capacity or 0, self.n_heads, self.out.in_features // self.n_heads) for _ in "kv")
        return KV(k, v, self.zeros(batch, dtype=torch.long), capacity is not None)

    def forward(self, x: Tensor, state: KV | None = None, lengths: Tensor | None = None) -> tuple[Tensor, KV | None]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        new, start = None, torch.zeros(1, dtype=torch.long, device=x.device)
        if state is not None:
            start = state.n
            new, k, v, _, _ = state.extend(k, v, lengths)
        (q, q_far), (k, k_far), (v, v_far) = (each.to(x).chunk(2, 2) for each in (q, k, v))
        far = self._strided if self.kind == "strided" else self._columns
        y = torch.cat([self._near(q, k, v, start), far(q_far, k_far, v_far, start)], 2)
        return self.out(y.flatten(2)), new

    def _near(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        """Blocks of queries look back from their first one: a stride, or to where its block begins."""
        step, strided = self.stride, self.kind == "strided"
        n = -(-q.shape[1] // step)
        size = -(-q.shape[1] // n)
        first = start[:, None] + torch.arange(n, device=q.device) * size
        first = first - (step if strided else first % step)
        listed = first[..., None] + torch.arange(size + step, device=q.device)
        return self._among(q, k, v, listed, start, Pattern(window=step + 1) if strided else Pattern(block=step))

    def _strided(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        """Queries a stride apart see the same keys: they are brought together, and back afterwards."""
        if is_recording():  # weights in the order of time
            pos = start[:, None] + torch.arange(q.shape[1], device=q.device)
            apart = pos[..., None] - torch.arange(k.shape[1], device=q.device)
            return attention(q, k, v, Pattern(mask=apart % self.stride == 0), pos)
        T = q.shape[1]
        n = min(self.stride, T)
        size = -(-T // n)
        q = F.pad(q, (0, 0, 0, 0, 0, n * size - T))
        pos = (start[:, None] + torch.arange(n * size, device=q.device)).unflatten(1, (size, n)).transpose(1, 2)
        every = torch.arange(0, k.shape[1], self.stride, device=q.device)
        listed = pos[:, :, :1] % self.stride + every
        together = q.unflatten(1, (size, n)).transpose(1, 2).flatten(1, 2)
        y = self._among(together, k, v, listed, start, Pattern(), pos.flatten(1))
        return y.unflatten(1, (n, size)).transpose(1, 2).flatten(1, 2)[:, :T]

    def _columns(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        at = torch.arange(k.shape[1], device=q.device)
        listed = at[at % self.stride >= self.stride - self.n_columns]
        return self._among(q, k, v, listed[None, None], start, Pattern())

    def _among(
        self, q: Tensor, k: Tensor, v: Tensor, listed: Tensor, start: Tensor, pattern: Pattern,
        q_pos: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if q_pos is None:
            q_pos = start[:, None] + torch.arange(q.shape[1], device=q.device)
        listed = torch.where((listed >= 0) & (listed < k.shape[1]), listed, -1)
        return block_attention(q, k, v, listed, pattern, q_pos, self.dropout if self.training else 0.0)
