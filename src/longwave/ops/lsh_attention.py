"""Attention among tokens that fell into the same bucket, nearly the same chunk of it, in any of R rounds of hashing.

In every round the tokens of a bucket, in the order of time, are cut into chunks of C. A query sees the keys of its own
chunk and of the one before, in each round, a key found in several rounds once:

    y_i = sum_j w_ij v_j        w_ij = softmax of q_i k_j over the j in P_i^1 + ... + P_i^R

It sees itself only where it sees nothing else. Which tokens a query sees depends on none that come later, so the answer
does not depend on where a sequence is cut.

`sorted` attends in blocks of C, round by round, and joins the rounds by their normalisers; a score is less log n where
n rounds found the key. It takes O(R T C) time and memory for T queries, beside the sorting of the
buckets of S keys; the definition O(T S).

Kitaev et al. 2020, section 2, eq. 4-6 (a set of keys a query, several rounds) and appendix A (their duplicates).
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide

ITSELF = -1e5  # a query's score of its own key: no weight beside any other, all of it alone


@op
def lsh_attention(
    q: Float[Tensor, "B T H K"],
    k: Float[Tensor, "B S H K"],
    v: Float[Tensor, "B S H V"],
    bucket: Int[Tensor, "B S H R"],
    chunk: int,
    q_pos: Int[Tensor, "B T"] | None = None,
    causal: bool = True,
) -> Float[Tensor, "B T H V"]:
    """Keys stand at their index, query t at q_pos[t] (by default at t); a token in a negative bucket is nobody's."""
    B, T, S = q.shape[0], q.shape[1], k.shape[1]
    place = torch.arange(S, device=q.device)
    q_pos = place[:T].expand(B, -1) if q_pos is None else q_pos
    kind = F.one_hot(bucket.clamp_min(0), int(bucket.max().clamp_min(0)) + 1) * (bucket >= 0)[..., None]
    part = ((kind.cumsum(1) * kind).sum(-1) - 1) // chunk
    at = q_pos[:, :, None, None].expand(-1, -1, *bucket.shape[2:])
    same = bucket.gather(1, at)[:, :, None] == bucket[:, None]
    apart = part.gather(1, at)[:, :, None] - part[:, None]
    sees = (same & (apart >= 0) & (apart <= 1) & (bucket >= 0)[:, None]).any(-1)
    itself = (q_pos[:, :, None] == place)[..., None]
    if causal:
        sees = sees & (q_pos[:, :, None] >= place)[..., None]
    scores = torch.einsum("bthk,bshk->btsh", wide(q), wide(k))
    scores = _alone(scores, itself).masked_fill(~(sees | itself), -torch.inf)
    return torch.einsum("btsh,bshv->bthv", scores.softmax(2), wide(v)).to(v.dtype)


@lsh_attention.samples
def lsh_attention_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def tokens(B: int, T: int, R: int, buckets: int, S: int | None = None) -> dict[str, Any]:
        S = S or T
        return dict(q=make.normal(B, T, 2, 3), k=make.normal(B, S, 2, 3), v=make.normal(B, S, 2, 4),
                    bucket=make.integers(buckets, B, S, 2, R))  # fmt: skip

    for T in (1, 2, 37):
        yield f"T={T}", dict(**tokens(2, T, 1, 3), chunk=4)
    yield "several rounds", dict(**tokens(2, 40, 3, 4), chunk=3)
    yield "both ways", dict(**tokens(2, 25, 2, 3), chunk=4, causal=False)
    yield "one bucket, one chunk", dict(**tokens(1, 9, 2, 1), chunk=16)
    holes = tokens(2, 20, 2, 3)
    holes["bucket"] = torch.where(torch.arange(20)[:, None, None] < 13, holes["bucket"], -1)
    yield "pads", dict(**holes, chunk=4, causal=False)
    placed = torch.tensor([[3], [11]]) + torch.arange(5)
    late = torch.tensor([[60], [43]]) + torch.arange(30)
    yield "queries late", dict(**tokens(2, 30, 2, 3, S=90), chunk=4, q_pos=late)
    yield "queries at their places", dict(**tokens(2, 5, 2, 3, S=18), chunk=3, q_pos=placed)


def _many(q: Tensor, k: Tensor, bucket: Tensor, chunk: int, **_: Any) -> str:
    return "" if q.shape[1] > 2 * chunk * bucket.shape[3] else "few queries: all scores are fewer"


@lsh_attention.form("torch.sorted", worth=_many)
def sorted_(
    q: Tensor, k: Tensor, v: Tensor, bucket: Tensor, chunk: int, q_pos: Tensor | None = None, causal: bool = True
) -> Tensor:
    at = None
    if q_pos is not None:
        k, v, bucket, at = _seen(k, v, bucket, chunk, q_pos, causal)
    B, S, H, R = bucket.shape
    n_buckets, chunk = int(bucket.max().clamp_min(0)) + 1, min(chunk, S)
    slot, cell = _slots(bucket.permute(0, 2, 3, 1), n_buckets, chunk)
    n_slots = (int(slot.max()) // chunk + 1) * chunk
    token = torch.arange(S, device=q.device).expand_as(slot)
    held = torch.full((B, H, R, n_slots), -1, device=q.device).scatter(3, slot, token)  # the token in a slot, or -1

    def blocks(x: Tensor) -> Tensor:  # [B, H, S, ...] -> [B, H, R, n, C, ...], by what is held
        rows = held.clamp_min(0).flatten(2)
        rows = rows.view(*rows.shape, *[1] * (x.ndim - 3)).expand(-1, -1, -1, *x.shape[3:])
        return x.gather(2, rows).unflatten(2, (R, -1, chunk))

    def with_before(x: Tensor) -> Tensor:
        return torch.cat([F.pad(x[:, :, :, :-1], [0, 0] * (x.ndim - 4) + [1, 0]), x], 4)

    if at is not None:
        q = q.new_zeros(B, S, *q.shape[2:]).scatter(1, at[..., None].expand_as(q), q)
    mine, keys, values = (blocks(wide(x).transpose(1, 2)) for x in (q, k, v))
    scores = mine @ with_before(keys).mT
    i = held.unflatten(3, (-1, chunk))
    j = torch.cat([F.pad(i[:, :, :, :-1], (0, 0, 1, 0), value=-1), i], 4)
    cells = blocks(cell.transpose(2, 3))  # every round's cell of the token in a slot
    cells_j = with_before(cells)
    found, here = torch.zeros_like(scores), []
    for r in range(R):
        gap = cells[..., r, None] - cells_j[..., None, :, r]
        match = ((gap == 0) | (gap == n_buckets)) & (cells_j[..., None, :, r] >= 0)
        found += match
        here.append(match[:, :, r])
    itself = i[..., None] == j[..., None, :]
    sees = torch.stack(here, 2) & (j >= 0)[..., None, :]
    if causal:
        sees = sees & (i[..., None] >= j[..., None, :])
    scores = _alone(scores - found.clamp_min(1).log(), itself).masked_fill(~(sees | itself), -torch.inf)
    total = scores.logsumexp(-1)
    y = (scores - total[..., None]).exp() @ with_before(values)
    y, total = y.flatten(3, 4), total.flatten(3, 4)
    y, total = y.gather(3, slot[..., None].expand(*slot.shape, v.shape[-1])), total.gather(3, slot)
    y = (total.softmax(2)[..., None] * y).sum(2).transpose(1, 2)
    if at is not None:
        y = y.gather(1, at[..., None].expand(-1, -1, -1, y.shape[3]))
    return y.to(v.dtype)


def _seen(
    k: Tensor, v: Tensor, bucket: Tensor, chunk: int, q_pos: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Int[Tensor, "B T H"]]:
    """The keys from the first query on, and of each bucket those of the last chunks before it, which alone it can see;
    in a round that does not need a key it is nobody's. And where the queries stand among them, head by head."""
    rank, kind = _ranks(bucket.permute(0, 2, 3, 1), int(bucket.max().clamp_min(0)) + 1)
    new = (torch.arange(k.shape[1], device=k.device) >= q_pos.amin(1, keepdim=True))[:, None, None]
    old = torch.zeros(*kind.shape[:3], int(kind.max()) + 1, dtype=torch.long, device=k.device)
    old = old.scatter_add(3, kind, (~new).expand_as(kind).long()).gather(3, kind)  # of the bucket, before the queries
    wanted = new | (rank >= (old // chunk - 1) * chunk) & (bucket >= 0).permute(0, 2, 3, 1)
    if causal:  # a buffer may have room for tokens to come
        wanted = wanted & (torch.arange(k.shape[1], device=k.device) <= q_pos.amax(1, keepdim=True))[:, None, None]
    some = wanted.any(2)
    kept = (~some).byte().argsort(stable=True, dim=-1)[..., : int(some.sum(-1).max())].transpose(1, 2)  # [B, M, H]
    there = (wanted & some[:, :, None]).permute(0, 3, 1, 2)
    bucket = torch.where(there, bucket, -1)
    k, v, bucket = (x.gather(1, kept[..., None].expand(-1, -1, -1, x.shape[3])) for x in (k, v, bucket))
    place = some.cumsum(-1) - 1
    return k, v, bucket, place.gather(2, q_pos[:, None].expand(-1, place.shape[1], -1)).transpose(1, 2)


def _alone(scores: Tensor, itself: Tensor) -> Tensor:
    return torch.where(itself, ITSELF + 0 * scores, scores)  # 0 times what is not a number stays seen


def _slots(bucket: Tensor, n_buckets: int, chunk: int) -> tuple[Tensor, Tensor]:
    """For bucket[B, H, R, S]: each token's slot among blocks of C that belong to one bucket, in the order of time, and
    its cell, chunk times buckets plus bucket. Nobody's tokens get a bucket behind the others, and the cell -1."""
    rank, kind = _ranks(bucket, n_buckets)
    n_blocks = -(-_count(kind, n_buckets) // chunk)
    base = (n_blocks.cumsum(-1) - n_blocks).gather(3, kind)
    cell = torch.where(bucket < 0, -1, rank // chunk * n_buckets + bucket)
    return base * chunk + rank, cell


def _ranks(bucket: Tensor, n_buckets: int) -> tuple[Tensor, Tensor]:
    """How many tokens of its bucket [B, H, R, S] come before each, and the bucket, `n_buckets` where there was none."""
    kind = torch.where(bucket < 0, n_buckets, bucket)
    order, count = kind.argsort(stable=True, dim=-1), _count(kind, n_buckets)
    first = (count.cumsum(-1) - count).gather(3, kind)
    place = torch.arange(kind.shape[3], device=kind.device).expand_as(order)
    return torch.empty_like(kind).scatter_(3, order, place) - first, kind


def _count(kind: Tensor, n_buckets: int) -> Tensor:
    count = torch.zeros(*kind.shape[:3], n_buckets + 1, dtype=torch.long, device=kind.device)
    return count.scatter_add(3, kind, torch.ones_like(kind))
