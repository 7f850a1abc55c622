"""Longformer: every token sees its neighbours, and a few global tokens see all and are seen by all.

Recurrence: none; the global tokens need the whole sequence. (A causal layer with a window and no global tokens, the
paper's autoregressive model, is `attention` with a window.)

Parallel form:
    y_t = attend(q_t; k_s, v_s for |t - s| < window and the global s)      a local token
    y_g = attend(q'_g; k'_s, v'_s for all s)                               a global one, by projections of its own

Cost: training O(T (window + n_global) d); no decoding, no state.

Paper: Beltagy et al. 2020, section 3.1.

Deviations: the global tokens are the first ones, not any; windows are not dilated.
"""

import torch
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.ops.block_attention import block_attention
from longwave.parts.linear import Linear


class Longformer(Mixer):
    causal = False

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        window: int = 64,  # tokens nearer than this see one another
        n_global: int = 1,  # this many first tokens see all and are seen by all
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(window=window, n_global=n_global + 1)
        self.n_heads, self.window, self.n_global, self.dropout = n_heads, window, n_global, dropout
        self.qkv = Linear(d_model, 3 * d_model, bias=bias)
        self.q_global = Linear(d_model, d_model, bias=bias) if n_global else None
        self.kv_global = Linear(d_model, 2 * d_model, bias=bias) if n_global else None
        self.out = Linear(d_model, d_model, bias=bias)
        hint(self.out, "weight", residual=True)

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        dropout = self.dropout if self.training else 0.0
        q, k, v = self._heads(self.qkv, x, 3)
        at = torch.arange(x.shape[1], device=x.device)[None]
        real = at if lengths is None else torch.where(at < lengths[:, None], at, -1)
        pattern = Pattern(causal=False, window=self.window, first=self.n_global)
        y = block_attention(q, k, v, self._near(real), pattern, dropout=dropout)
        if self.q_global is not None and self.kv_global is not None:
            (q,) = self._heads(self.q_global, x[:, : self.n_global], 1)
            k, v = self._heads(self.kv_global, x, 2)
            seeing_all = attention(q, k, v, Pattern(causal=False), at[:, : q.shape[1]], real, dropout=dropout)
            y = torch.cat([seeing_all, y[:, self.n_global :]], 1)
        return self.out(y.flatten(2)), None

    def _heads(self, project: nn.Module, x: Tensor, n: int) -> tuple[Tensor, ...]:
        return project(x).unflatten(-1, (n, self.n_heads, -1)).unbind(2)

    def _near(self, real: Tensor) -> Tensor:
        """The keys that each block of queries may see; `real` holds a key's own index, or -1 where it is a pad."""
        T, reach = real.shape[1], self.window - 1
        n = -(-T // self.window)
        size = -(-T // n)
        first = torch.arange(n, device=real.device)[:, None] * size
        near = first - reach + torch.arange(size + 2 * reach, device=real.device)
        ever = torch.arange(min(self.n_global, T), device=real.device).expand(n, -1)
        listed = torch.cat([ever, near], 1)
        return torch.where((listed >= 0) & (listed < T), real[:, listed.clamp(0, T - 1)], -1)
