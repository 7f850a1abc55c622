"""Attention among listed keys: the kernel of attention, which picks keys by lists instead of copying them."""

import torch
from torch import Tensor

from longwave.ops.attention import Pattern
from longwave.ops.block_attention import block_attention
from longwave.ops.native.attention import attend, can_attend
from longwave.ops.native.bind import rows


def _when(
    q: Tensor, k: Tensor, v: Tensor, listed: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    dropout: float = 0.0,
) -> str:  # fmt: skip
    return can_attend(pattern, dropout, q, k, v)


@block_attention.form("native", when=_when)
def native(
    q: Tensor, k: Tensor, v: Tensor, listed: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    q_pos = torch.arange(q.shape[1])[None] if q_pos is None else q_pos
    k_pos = torch.arange(k.shape[1])[None]  # a key stands at its index
    return attend(q, k, v, pattern, q_pos, k_pos, rows(listed), None, dropout)
