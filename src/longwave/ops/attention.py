"""Softmax attention: y_t = sum_s w_ts v_s, with w_t = softmax_s(scale q_t k_s + bias_ts) over the s that t may see.

The match of a query and a key is their dot product, or any `score(q, k)` that gives [B, H, T, S].

Who sees whom is a `Pattern` of positions, so one op serves full and causal attention, a cache, a ring, a window,
padding and an encoder's memory: a query stands at `q_pos`, a key at `k_pos`, and a negative `k_pos` is nobody's. A
query that sees nothing gives exactly 0, with a clean gradient.

G groups of heads share keys and values: G = H is multi-head attention, 1 < G < H grouped-query, G = 1 multi-query.

Forms: the definition holds all weights, O(T S) memory, and so takes dropout and lets them be recorded; `fused` is
torch's kernel; `band` visits only the blocks that a window reaches, O(T window) time and memory.

Vaswani et al. 2017, section 3.2 (the scaled dot product); Press et al. 2022, section 3 (ALiBi: the bias -slope (t -
s)); Raffel et al. 2020, section 2.1 (a learned bias for each head and bucket of distances).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.record import is_recording, record


@dataclass(frozen=True)
class Pattern:
    """Who sees whom, and with what bias."""

    causal: bool = True  # a query sees keys up to and including its own position
    window: int | None = None  # and of these only those nearer than `window`
    slopes: Float[Tensor, " H"] | None = None  # ALiBi: with each position of distance a head's bias falls by its slope
    aligned: bool = False  # a promise: the last T keys are the queries' own, and earlier keys precede them in order
    block: int | None = None  # time is cut into blocks of this many: a query sees the keys of its own block
    around: int = 0  # and those of so many blocks before it (and after)
    first: int = 0  # keys at positions below this are seen from outside the window and the block too
    mask: Bool[Tensor, "#B T S"] | None = None  # and of all these only those that are True here
    table: Float[Tensor, "H N"] | None = None  # a bias for each head and bucket of distances, near ones one a bucket
    farthest: int = 128  # distances from here on share the last bucket

    def sees(self, q_pos: Int[Tensor, "#B T"], k_pos: Int[Tensor, "#B S"]) -> Bool[Tensor, "#B T S"]:
        gap = q_pos[:, :, None] - k_pos[:, None, :]
        seen = (k_pos >= 0)[:, None, :].expand_as(gap)
        if self.causal:
            seen = seen & (gap >= 0)
        ever = (k_pos < self.first)[:, None, :]
        if self.window is not None:
            seen = seen & ((gap.abs() < self.window) | ever)
        if self.block is not None:
            apart = q_pos[:, :, None] // self.block - k_pos[:, None, :] // self.block
            seen = seen & ((apart.abs() <= self.around) | ever)
        return seen if self.mask is None else seen & self.mask

    @property
    def biased(self) -> bool:
        return self.slopes is not None or self.table is not None

    def bias(self, q_pos: Int[Tensor, "#B T"], k_pos: Int[Tensor, "#B S"]) -> Float[Tensor, "#B H T S"] | None:
        gap = q_pos[:, :, None] - k_pos[:, None, :]
        bias = None
        if self.slopes is not None:
            bias = -self.slopes[:, None, None] * gap.abs()[:, None]
        if self.table is not None:
            found = F.embedding(self._bucket(gap), self.table.T).permute(0, 3, 1, 2)
            bias = found if bias is None else bias + found
        return bias

    def _bucket(self, gap: Int[Tensor, "#B T S"]) -> Int[Tensor, "#B T S"]:
        """A distance each for half of the buckets, growing ranges for the others; both ways, a half each way."""
        assert self.table is not None
        n = self.table.shape[1] // (1 if self.causal else 2)
        far, near = gap.clamp_min(0) if self.causal else gap.abs(), n // 2
        grown = torch.log(far.clamp_min(1).float() / near) / math.log(self.farthest / near) * (n - near)
        bucket = torch.where(far < near, far, (near + grown.long()).clamp_max(n - 1))
        return bucket if self.causal else bucket + n * (gap < 0)


def weigh(scores: Float[Tensor, "*B S"], seen: Bool[Tensor, "*#B S"]) -> Float[Tensor, "*B S"]:
    """The softmax of the scores over what is seen, in at least float32; zeros where nothing is."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~seen, -torch.inf)
    if not scores.shape[-1]:
        return scores
    small = torch.finfo(scores.dtype)
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True).clamp_min(small.min))
    return weights / weights.sum(-1, keepdim=True).clamp_min(small.tiny)


Score = Callable[[Tensor, Tensor], Tensor]


@op
def attention(
    q: Float[Tensor, "B T H K"],
    k: Float[Tensor, "B S G K"],
    v: Float[Tensor, "B S G V"],
    pattern: Pattern = Pattern(),
    q_pos: Int[Tensor, "#B T"] | None = None,
    k_pos: Int[Tensor, "#B S"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
) -> Float[Tensor, "B T H V"]:
    """By default keys stand at 0, 1, 2 ..., the queries at the last T of these; the scale of a dot product is
    1 / sqrt(K), of another score 1.

    A position tensor has B rows, or one for all.
    """
    q_pos, k_pos = _positions(q, k, q_pos, k_pos)
    k, v = _for_each_head(k, q), _for_each_head(v, q)
    if score is None:
        scores = torch.einsum("bthk,bshk->bhts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    else:
        scores = score(q, k) * (1.0 if scale is None else scale)
    bias = pattern.bias(q_pos, k_pos)
    if bias is not None:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores + bias.to(scores)
    weights = weigh(scores, pattern.sees(q_pos, k_pos)[:, None])
    record("weights", weights)
    return torch.einsum("bhts,bshv->bthv", F.dropout(weights, dropout).to(v.dtype), v)


@attention.samples
def attention_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def qkv(B: int, T: int, S: int, H: int = 2, G: int = 2, K: int = 4, V: int = 4) -> dict[str, Any]:
        return dict(q=make.normal(B, T, H, K), k=make.normal(B, S, G, K), v=make.normal(B, S, G, V))

    for T in (1, 2, 37):
        yield f"causal T={T}", qkv(2, T, T)
    yield "both ways", dict(**qkv(2, 7, 9), pattern=Pattern(causal=False))
    yield "grouped heads, wide values", qkv(1, 9, 9, H=6, G=2, K=3, V=5)
    yield "one key head, own scale", dict(**qkv(2, 9, 9, H=4, G=1), scale=1.0)
    slopes = make.between(0.1, 1, 2).detach()
    for causal in (True, False):
        for T, window in ((23, 4), (8, 8), (9, 1), (5, 30)):
            yield f"window {window}, causal={causal}, T={T}", dict(**qkv(2, T, T), pattern=Pattern(causal, window))
        yield f"slopes, causal={causal}", dict(**qkv(1, 11, 11), pattern=Pattern(causal, 3, slopes))
        table = make.normal(2, 8).detach()
        yield f"a table, causal={causal}", dict(**qkv(1, 25, 25), pattern=Pattern(causal, 6, table=table, farthest=12))
    mask = make.integers(2, 2, 9, 11) > 0
    yield "a mask", dict(**qkv(2, 9, 11), pattern=Pattern(causal=False, mask=mask))
    yield "another score", dict(**qkv(2, 9, 9), score=lambda q, k: torch.einsum("bthk,bshk->bhts", q.sin(), k.cos()))
    yield "blocks", dict(**qkv(1, 11, 11), pattern=Pattern(block=4))
    for causal in (True, False):
        near = Pattern(causal, 6, block=3, around=1)
        yield f"blocks and those around, causal={causal}", dict(**qkv(2, 17, 17), pattern=near)
    yield "a window and the first", dict(**qkv(2, 23, 23), pattern=Pattern(False, 3, first=2))
    past = torch.tensor([[0], [2], [5]]) + torch.arange(4)
    buffer = torch.arange(12).expand(3, 12)
    yield "a cache, rows at different places", dict(**qkv(3, 4, 12), q_pos=past, k_pos=buffer)
    held = torch.cat([past[:, :1] - torch.arange(3, 0, -1), past], 1)
    yield "an ordered window", dict(**qkv(3, 4, 7), pattern=Pattern(True, 4, aligned=True), q_pos=past, k_pos=held)
    memory = torch.where(torch.arange(5) < torch.tensor([[5], [0], [2]]), torch.arange(5), -1)
    yield "a memory, one row empty", dict(**qkv(3, 4, 5), pattern=Pattern(causal=False), k_pos=memory)


def _fused_when(dropout: float = 0.0, score: Score | None = None, **_: Any) -> str:
    if score is not None:
        return "the score is not a dot product"
    if dropout:
        return "dropout needs the weights"
    return "the weights are being recorded" if is_recording() else ""


def _band_when(
    q: Tensor, k: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None, k_pos: Tensor | None = None,
    dropout: float = 0.0, score: Score | None = None, **_: Any,
) -> str:  # fmt: skip
    if pattern.window is None:
        return "no window"
    if pattern.first or pattern.mask is not None:
        return "the band does not know the first keys, or a mask"
    if not (pattern.aligned or (q_pos is None and k_pos is None)) or q.shape[1] > k.shape[1]:
        return "keys are not in the order of the queries"
    return _fused_when(dropout, score)


def _band_worth(q: Tensor, pattern: Pattern, **_: Any) -> str:
    return "" if 2 * (pattern.window or 0) <= q.shape[1] else "the window is wide"


@attention.form("torch.band", when=_band_when, worth=_band_worth)
def band(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    k_pos: Tensor | None = None, scale: float | None = None, dropout: float = 0.0, score: Score | None = None,
) -> Tensor:  # fmt: skip
    """Queries in blocks of the window's size; each sees its own block of keys and the one before (and after)."""
    assert pattern.window is not None
    q_pos, k_pos = _positions(q, k, q_pos, k_pos)
    T, size = q.shape[1], pattern.window
    n, extra = -(-T // size), k.shape[1] - T
    around = 2 if pattern.causal else 3
    behind = (n * size - T) + (0 if pattern.causal else size)

    def spread(x: Tensor, fill: float = 0.0) -> Tensor:  # [B, S, ...] -> [B n, around size, ...]
        x = x[:, max(0, extra - size) :]
        x = F.pad(x, [0, 0] * (x.ndim - 2) + [max(0, size - extra), behind], value=fill)
        seen = torch.cat([x[:, i * size : (i + n) * size].unflatten(1, (n, size)) for i in range(around)], 2)
        return seen.flatten(0, 1)

    def split(x: Tensor) -> Tensor:
        return F.pad(x, [0, 0] * (x.ndim - 2) + [0, n * size - T]).unflatten(1, (n, size)).flatten(0, 1)

    rows = max(len(q_pos), len(k_pos))
    wide_q, wide_k = split(q_pos.expand(rows, -1)), spread(k_pos.expand(rows, -1), fill=-1)
    if rows < len(q):
        wide_q, wide_k = wide_q.repeat(len(q), 1), wide_k.repeat(len(q), 1)
    y = fused(split(q), spread(k), spread(v), pattern, wide_q, wide_k, scale, dropout)
    return y.unflatten(0, (-1, n)).flatten(1, 2)[:, :T]


@attention.form("torch.fused", when=_fused_when)
def fused(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    k_pos: Tensor | None = None, scale: float | None = None, dropout: float = 0.0, score: Score | None = None,
) -> Tensor:  # fmt: skip
    T, S = q.shape[1], k.shape[1]
    free = pattern.window is None and pattern.block is None and pattern.mask is None and not pattern.biased
    plain = q_pos is None and k_pos is None and free
    plain = plain and S >= 16  # among fewer keys torch's kernel loses a NaN, unless it is given a mask
    triangle = plain and pattern.causal and T == S
    mask = blind = None
    if not (triangle or (plain and not pattern.causal)):
        q_pos, k_pos = _positions(q, k, q_pos, k_pos)
        mask = pattern.sees(q_pos, k_pos)[:, None]
        blind = ~mask.any(-1, keepdim=True)  # torch gives NaN where nothing is seen: let these see all, then erase them
        mask = mask | blind
        bias = pattern.bias(q_pos, k_pos)
        if bias is not None:
            mask = torch.where(mask, bias.to(q), -torch.inf)
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask,
        is_causal=triangle, scale=scale, enable_gqa=k.shape[2] != q.shape[2],
    )  # fmt: skip
    if blind is not None:
        y = torch.where(blind, 0.0, y)
    return y.transpose(1, 2)


attention.form("torch.weights")(attention.reference)


def _positions(q: Tensor, k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None) -> tuple[Tensor, Tensor]:
    T, S = q.shape[1], k.shape[1]
    if q_pos is None:
        q_pos = torch.arange(S - T, S, device=q.device)[None]
    if k_pos is None:
        k_pos = torch.arange(S, device=q.device)[None]
    return q_pos, k_pos


def _for_each_head(x: Tensor, q: Tensor) -> Tensor:
    return x if x.shape[2] == q.shape[2] else x.repeat_interleave(q.shape[2] // x.shape[2], 2)
