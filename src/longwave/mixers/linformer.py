"""Linformer: attention whose keys and values are first mixed over time, by a learned matrix, into a few of each.

Recurrence: none; every output needs the whole sequence.

Parallel form:
    Y = softmax(Q (E K)^T / sqrt(d)) F V        E, F [rank, T]: the first columns of a matrix for the longest sequence

Cost: training O(T r d) for rank r; no decoding, no state.

Paper: Wang et al. 2020, "Linformer: self-attention with linear complexity", section 4, eq. 7.

Deviations: a row of n tokens uses the first n columns of E and F, so that padding counts for nothing; they are shared
by the heads.
"""

import math

import torch
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear


class Linformer(Mixer):
    causal = False

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        rank: int = 64,  # keys and values that are left
        longest: int = 1024,  # tokens of the longest sequence
        shared: bool = False,  # one matrix for keys and values
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(rank=rank, longest=longest)
        self.n_heads = n_heads
        self.qkv = Linear(d_model, 3 * d_model, bias=False)
        self.mix = nn.Parameter(torch.randn(1 if shared else 2, rank, longest) / math.sqrt(rank))
        self.out = Linear(d_model, d_model, bias=False)
        hint(self, "mix", own_init=True)
        hint(self.out, "weight", residual=True)

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        T, longest = x.shape[1], self.mix.shape[2]
        if longest < T:
            raise UserError(f"this Linformer mixes up to {longest} tokens, got {T}: longest={T} makes room for them")
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        k, v = (
            torch.einsum("rt,bthk->brhk", mix[:, :T], zero_pads(each, lengths))
            for mix, each in zip(self.mix.expand(2, -1, -1), (k, v), strict=True)
        )
        y = attention(q, k, v, Pattern(causal=False))
        return self.out(y.flatten(2)), None
