"""The matrix recurrence of linear attention and its kin: S_t = diag(a_t) S_{t-1} + k_t v_t^T and y_t = S_t^T q_t.

The decay a_t = exp(log_decay_t) is absent (linear attention), a number a head (RetNet, Mamba-2), or a number a
channel (GLA). A log-decay of -inf is a reset. H heads may share G groups of queries and keys (G divides H), as in
Mamba-2.

The chunked form cuts time into chunks of C. With G_i the sum of log-decays up to i inside a chunk and S the state
before it,

    y_i = (q_i exp(G_i))^T S  +  sum_{j <= i} (sum_c q_ic k_jc exp(G_ic - G_jc)) v_j
    S'  = diag(exp(G_C)) S  +  sum_j (k_j exp(G_C - G_j)) v_j^T

One chunk of the whole length is the parallel form, O(T^2) work; the recurrence is the form for decoding.

Katharopoulos et al. 2020, eq. 18-20 (the recurrence); Yang et al. 2024, section 4 (chunks with a decay a channel);
Dao and Gu 2024, section 6 (chunks with a decay a head).
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.chunks import decayed_products, decays_between, in_chunks, out_of_chunks, sums_after
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads


@op
def linear_recurrence(
    q: Float[Tensor, "B T G K"],
    k: Float[Tensor, "B T G K"],
    v: Float[Tensor, "B T H V"],
    log_decay: Float[Tensor, "B T H"] | Float[Tensor, "B T H K"] | None = None,
    state: Float[Tensor, "B H K V"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T H V"], Float[Tensor, "B H K V"] | None]:
    """Returns y, and the last S where an initial one was given."""
    q, k, values, log_decay = _spread(q, k, v, log_decay, lengths)
    decay = log_decay.exp() if log_decay.ndim == 4 else log_decay.exp()[..., None]
    S = values.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if state is None else state
    ys = []
    for qt, kt, vt, at in zip(q.unbind(1), k.unbind(1), values.unbind(1), decay.unbind(1), strict=True):
        S = at[..., None] * S + kt[..., None] * vt[..., None, :]
        ys.append(torch.einsum("bhk,bhkv->bhv", qt, S))
    return torch.stack(ys, 1).to(v.dtype), None if state is None else S


@linear_recurrence.samples
def linear_recurrence_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def qkv(B: int, T: int, H: int, K: int, V: int, G: int | None = None) -> dict[str, Any]:
        return dict(q=make.normal(B, T, G or H, K), k=make.normal(B, T, G or H, K), v=make.normal(B, T, H, V))

    for T in (1, 2, 7, 150):
        yield f"no decay, T={T}", dict(**qkv(2, T, 2, 3, 5), state=make.normal(2, 2, 3, 5))
        yield f"a decay a head, T={T}", dict(**qkv(2, T, 2, 4, 3), log_decay=make.between(-2, 0, 2, T, 2))
        yield (
            f"a decay a channel, T={T}",
            dict(**qkv(2, T, 2, 4, 3), log_decay=make.between(-2, 0, 2, T, 2, 4), state=make.normal(2, 2, 4, 3)),
        )
    yield (
        "strong decay",
        dict(**qkv(1, 90, 1, 2, 2), log_decay=make.between(-60, 0, 1, 90, 1, 2), state=make.normal(1, 1, 2, 2)),
    )
    lengths = torch.tensor([0, 70, 33])
    yield (
        "ragged",
        dict(
            **qkv(3, 70, 2, 3, 2),
            log_decay=make.between(-1, 0, 3, 70, 2),
            state=make.normal(3, 2, 3, 2),
            lengths=lengths,
        ),
    )
    yield (
        "shared keys",
        dict(**qkv(2, 20, 4, 3, 2, G=2), log_decay=make.between(-1, 0, 2, 20, 4), state=make.normal(2, 4, 3, 2)),
    )
    for shape in ((1, 40, 2), (1, 40, 2, 3)):
        reset = make.between(-1, 0, *shape).detach()
        reset = torch.where(reset < -0.8, -torch.inf, reset).requires_grad_(make.grad)
        yield f"resets, {len(shape)} axes", dict(**qkv(1, 40, 2, 3, 2), log_decay=reset, state=make.normal(1, 2, 3, 2))


def _long(v: Tensor, **_: Any) -> str:
    return "" if v.shape[1] > 4 else "few steps: the recurrence is faster"


@linear_recurrence.form("torch.chunked", worth=_long)
def chunked(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None, state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    size = min(
        v.shape[1], 16 if log_decay is not None and log_decay.ndim == 4 else 64
    )  # a channel's decay is [C, C, K]
    q, k, values, log_decay = (in_chunks(x, size) for x in _spread(q, k, v, log_decay, lengths))
    if log_decay.ndim == 4:
        log_decay = log_decay[..., None]
    total = log_decay.cumsum(3)
    weights = decayed_products(q, k, decays_between(log_decay))
    added = torch.einsum("bnhck,bnhcv->bnhkv", k * sums_after(log_decay).exp(), values)
    carry = total[:, :, :, -1].exp()[..., None]
    S = torch.zeros_like(added[:, 0]) if state is None else state
    before = []
    for kept, new in zip(carry.unbind(1), added.unbind(1), strict=True):
        before.append(S)
        S = kept * S + new
    y = weights @ values + (q * total.exp()) @ torch.stack(before, 1)
    return out_of_chunks(y, v.shape[1]).to(v.dtype), None if state is None else S


def _spread(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every head its own q and k; every token its decay; pads add nothing and forget nothing."""
    q, k, v = wide(q), wide(k), wide(v)
    H = v.shape[2]
    if q.shape[2] != H:
        q, k = (x.repeat_interleave(H // x.shape[2], 2) for x in (q, k))
    log_decay = torch.zeros_like(v[..., 0]) if log_decay is None else wide(log_decay)
    return q, zero_pads(k, lengths), v, zero_pads(log_decay, lengths)
