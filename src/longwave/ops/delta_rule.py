"""The delta rule: a matrix state that corrects what it holds under a key, where linear attention only adds.

    S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T        y_t = S_t^T q_t        w_t = exp(log_decay_t)

The state is asked what it holds under `a`, and the answer is written under `b`. Its users differ in these two:

    delta rule      a = k                b = -beta k         (k scaled by beta in k v^T)      Schlag et al. 2021
    gated           a = k                b = -w beta k       w a number a head                Yang et al. 2024
    RWKV-7          a = -k'              b = k' s            k' a unit vector, s in (0, 1)    Peng et al. 2025

The chunked form cuts time into chunks of C. Inside one, with S the state before it, G_i the sum of log-decays up to i
and u_i = S_{i-1}^T a_i the answers,

    u_i = (a_i exp(G_{i-1}))^T S + sum_{j < i} (a_i . k_j exp(G_{i-1} - G_j)) v_j + (a_i . b_j exp(G_{i-1} - G_j)) u_j

is a triangular system, solved for all chunks at once for the part without S and the part that S multiplies (the WY
representation). What is left is linear attention with the pairs (k, v) and (b, u). With A the decayed products,

    U = (1 - A_ab)^-1 (A_ak V + (a exp G) S)        Y = (q exp G) S + A_qk V + A_qb U
    S' = exp(G_C) S + (k exp(G_C - G))^T V + (b exp(G_C - G))^T U

Yang et al. 2024, "Parallelizing linear transformers with the delta rule over sequence length", section 3.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.chunks import decayed_products, decays_between, in_chunks, out_of_chunks, sums_after
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads


@op
def delta_rule(
    q: Float[Tensor, "B T H K"],
    k: Float[Tensor, "B T H K"],
    v: Float[Tensor, "B T H V"],
    a: Float[Tensor, "B T H K"],
    b: Float[Tensor, "B T H K"],
    log_decay: Float[Tensor, "B T H"] | Float[Tensor, "B T H K"] | None = None,
    state: Float[Tensor, "B H K V"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T H V"], Float[Tensor, "B H K V"] | None]:
    """Returns y, and the last S where an initial one was given."""
    inputs = _prepared(q, k, v, a, b, log_decay, lengths)
    S = inputs[2].new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if state is None else state
    ys = []
    for qt, kt, vt, at, bt, gt in zip(*(x.unbind(1) for x in inputs), strict=True):
        held = at[..., None, :] @ S
        S = gt.exp()[..., None] * S + bt[..., None] * held + kt[..., None] * vt[..., None, :]
        ys.append((qt[..., None, :] @ S)[..., 0, :])
    return torch.stack(ys, 1).to(v.dtype), None if state is None else S


@delta_rule.samples
def delta_rule_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, H: int, K: int, V: int) -> dict[str, Any]:
        unit = F.normalize(make.normal(B, T, H, K).detach(), dim=-1)
        beta = make.between(0, 1, B, T, H, 1).detach()
        return dict(
            q=make.normal(B, T, H, K), k=(beta * unit).requires_grad_(make.grad), v=make.normal(B, T, H, V),
            a=unit.clone().requires_grad_(make.grad), b=(-beta * unit).requires_grad_(make.grad),
        )  # fmt: skip

    for T in (1, 2, 7, 150):
        yield f"no decay, T={T}", dict(**inputs(2, T, 2, 3, 5), state=make.normal(2, 2, 3, 5))
        yield f"a decay a head, T={T}", dict(**inputs(2, T, 2, 4, 3), log_decay=make.between(-2, 0, 2, T, 2))
        yield (
            f"a decay a channel, T={T}",
            dict(**inputs(2, T, 2, 4, 3), log_decay=make.between(-2, 0, 2, T, 2, 4), state=make.normal(2, 2, 4, 3)),
        )
    yield (
        "strong decay",
        dict(**inputs(1, 90, 1, 2, 2), log_decay=make.between(-60, 0, 1, 90, 1, 2), state=make.normal(1, 1, 2, 2)),
    )
    lengths = torch.tensor([0, 70, 33])
    yield (
        "ragged",
        dict(
            **inputs(3, 70, 2, 3, 2),
            log_decay=make.between(-1, 0, 3, 70, 2, 3),
            state=make.normal(3, 2, 3, 2),
            lengths=lengths,
        ),
    )
    yield "ragged, no decay", dict(**inputs(3, 70, 2, 3, 2), state=make.normal(3, 2, 3, 2), lengths=lengths)
    for shape in ((1, 40, 2), (1, 40, 2, 3)):
        reset = make.between(-1, 0, *shape).detach()
        reset = torch.where(reset < -0.8, -torch.inf, reset).requires_grad_(make.grad)
        yield (
            f"resets, {len(shape)} axes",
            dict(**inputs(1, 40, 2, 3, 2), log_decay=reset, state=make.normal(1, 2, 3, 2)),
        )


def _long(v: Tensor, **_: Any) -> str:
    return "" if v.shape[1] > 4 else "few steps: the recurrence is faster"


@delta_rule.form("torch.chunked", worth=_long)
def chunked(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, log_decay: Tensor | None = None,
    state: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    size = min(v.shape[1], 16 if log_decay is not None and log_decay.ndim == 4 else 64)  # a channel's is [C, C, K]
    q, k, values, a, b, g = (in_chunks(x, size) for x in _prepared(q, k, v, a, b, log_decay, lengths))
    total, decay = g.cumsum(3), decays_between(g)
    one = torch.eye(g.shape[3], dtype=g.dtype, device=g.device)
    answers = _from_earlier(a, k, decay) @ values
    reads = a * F.pad(total[:, :, :, :-1], (0, 0, 1, 0)).exp()  # of the state before the chunk
    both = torch.cat([answers, reads], -1)
    both = torch.linalg.solve_triangular(one - _from_earlier(a, b, decay), both, upper=False, unitriangular=True)
    answers, reads = both.split([values.shape[-1], reads.shape[-1]], -1)
    to_end, carry = sums_after(g).exp(), total[:, :, :, -1, :, None].exp()
    added, kept = (k * to_end).mT @ values, (b * to_end).mT
    S = torch.zeros_like(added[:, 0]) if state is None else state
    before, found = [], []
    for ut, rt, ct, nt, bt in zip(*(x.unbind(1) for x in (answers, reads, carry, added, kept)), strict=True):
        u = ut + rt @ S
        before.append(S)
        found.append(u)
        S = ct * S + nt + bt @ u
    y = decayed_products(q, k, decay) @ values + decayed_products(q, b, decay) @ torch.stack(found, 1)
    y = y + (q * total.exp()) @ torch.stack(before, 1)
    return out_of_chunks(y, v.shape[1]).to(v.dtype), None if state is None else S


def _from_earlier(left: Tensor, right: Tensor, decay: Tensor) -> Tensor:
    """Decayed products where left_i meets the state before step i: strictly lower triangular."""
    following = F.pad(left[:, :, :, 1:], (0, 0, 0, 1))
    return F.pad(decayed_products(following, right, decay)[..., :-1, :], (0, 0, 1, 0))


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, log_decay: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, ...]:
    """Every token its decay, with a channel axis; pads add nothing, erase nothing and forget nothing."""
    q, k, v, a, b = (wide(x) for x in (q, k, v, a, b))
    g = torch.zeros_like(v[..., 0]) if log_decay is None else wide(log_decay)
    g = zero_pads(g if g.ndim == 4 else g[..., None], lengths)
    return q, zero_pads(k, lengths), v, a, zero_pads(b, lengths), g
