"""Softmax attention where each block of queries sees only the keys on its own short list.

The T queries are cut into n blocks of equal size (the last may be short); block i may see the keys `listed[:, i]`,
which stand at their index, and of these each query those that the pattern lets it see. A negative entry is nobody's,
and a key listed twice is seen once. Sliding windows with global tokens, random blocks and strided columns are lists.

The definition masks all T S scores, and so lets the weights be recorded. `gathered` fetches each block's L keys and
attends among them, O(T L) time and memory: linear in T where lists do not grow with it.

Child et al. 2019, section 4 (factorised patterns); Zaheer et al. 2020, section 2 (attention as a sparse graph).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.attention import Pattern, attention
from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.record import is_recording


@op
def block_attention(
    q: Float[Tensor, "B T H K"],
    k: Float[Tensor, "B S G K"],
    v: Float[Tensor, "B S G V"],
    listed: Int[Tensor, "#B n L"],
    pattern: Pattern = Pattern(),
    q_pos: Int[Tensor, "#B T"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B T H V"]:
    """By default the queries stand at 0, 1, 2 ... A list or a position tensor has B rows, or one for all; the list is
    the only mask."""
    T, S, n = q.shape[1], k.shape[1], listed.shape[1]
    q_pos = torch.arange(T, device=q.device)[None] if q_pos is None else q_pos
    own = torch.zeros(listed.shape[0], n, S + 1, dtype=torch.bool, device=q.device)
    own = own.scatter(2, torch.where(listed < 0, S, listed), True)[..., :S]
    mask = own.repeat_interleave(-(-T // n), 1)[:, :T]
    return attention.reference(q, k, v, replace(pattern, mask=mask), q_pos, None, None, dropout)


@block_attention.samples
def block_attention_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def qkv(B: int, T: int, S: int, H: int = 2, G: int = 2, K: int = 4, V: int = 4) -> dict[str, Any]:
        return dict(q=make.normal(B, T, H, K), k=make.normal(B, S, G, K), v=make.normal(B, S, G, V))

    lists = make.integers(12, 1, 4, 5)
    yield "causal", dict(**qkv(2, 12, 12), listed=lists)
    yield "blocks of unequal size", dict(**qkv(2, 11, 12), listed=lists, pattern=Pattern(causal=False))
    yield "one block", dict(**qkv(1, 7, 12), listed=lists[:, :1], pattern=Pattern(causal=False))
    yield "a list a row, with gaps", dict(**qkv(3, 12, 12), listed=make.integers(13, 3, 4, 6) - 1)
    yield "nothing listed for a block", dict(**qkv(1, 4, 12), listed=torch.tensor([[[-1, -1], [1, 2]]]))
    yield "twice listed", dict(**qkv(1, 4, 12), listed=torch.tensor([[[3, 3, 1], [2, 1, 2]]]))
    pattern = Pattern(False, 3, make.between(0.1, 1, 4).detach(), first=2)
    yield "a pattern, grouped heads", dict(**qkv(2, 12, 12, H=4, V=3), listed=lists, pattern=pattern)
    placed = torch.tensor([[4], [7]]) + torch.arange(6)
    every = torch.arange(14).expand(2, 3, 14)
    yield "queries at their places", dict(**qkv(2, 6, 14), listed=every, pattern=Pattern(block=4), q_pos=placed)


def _gathered_when(**_: Any) -> str:
    return "the weights are being recorded" if is_recording() else ""


@block_attention.form("torch.gathered", when=_gathered_when)
def gathered(
    q: Tensor, k: Tensor, v: Tensor, listed: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    B, T, n = q.shape[0], q.shape[1], listed.shape[1]
    size = -(-T // n)
    q_pos = torch.arange(T, device=q.device)[None] if q_pos is None else q_pos
    listed = listed.sort(-1).values
    again = F.pad(listed[..., 1:] == listed[..., :-1], (1, 0))
    k_pos = listed.masked_fill(again, -1).expand(B, -1, -1)
    row = torch.arange(B, device=q.device)[:, None, None] * k.shape[1]
    at = (k_pos.clamp_min(0) + row).flatten()
    keys, values = (x.flatten(0, 1).index_select(0, at).unflatten(0, (B * n, -1)) for x in (k, v))
    blocks = F.pad(q, (0, 0, 0, 0, 0, n * size - T)).reshape(B * n, size, *q.shape[2:])
    places = F.pad(q_pos.expand(B, -1), (0, n * size - T)).reshape(B * n, size)
    pattern = replace(pattern, aligned=False)
    y = attention(blocks, keys, values, pattern, places, k_pos.flatten(0, 1), dropout=dropout)
    return y.reshape(B, n * size, *y.shape[2:])[:, :T]


block_attention.form("torch.weights")(block_attention.reference)
