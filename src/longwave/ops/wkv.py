"""RWKV's WKV: an average of all values so far, weighted by the exponential of their keys, older ones less.

    wkv_t = (A_{t-1} + e^(u + k_t) v_t) / (B_{t-1} + e^(u + k_t))
    A_t = e^w A_{t-1} + e^k_t v_t            B_t = e^w B_{t-1} + e^k_t

w < 0 is a channel's log-decay, u its bonus for the token at hand. Keys have no bound, so the state holds A and B in
units of e^m with m the largest exponent so far: (A e^-m, B e^-m, m), m = -inf before the first token. m is a scale, not
a quantity: every m gives the same answer, so no gradient goes through the choice of the next one.

The scan form finds all m at once, m_t = t w + max_{s <= t} (k_s - s w), then A and B by `linear_scan`. Differences of m
are taken in float64: they are small where m is large, and what they lose A and B would add up.

Peng et al. 2023, eq. 16 and appendix D (the stable form, eq. 23-28).
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan

Sums = tuple[Tensor, Tensor, Tensor]


@op
def wkv(
    k: Float[Tensor, "B T D"],
    v: Float[Tensor, "B T D"],
    log_decay: Float[Tensor, " D"],
    bonus: Float[Tensor, " D"],
    state: tuple[Float[Tensor, "B D"], Float[Tensor, "B D"], Float[Tensor, "B D"]] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], tuple[Float[Tensor, "B D"], Float[Tensor, "B D"], Float[Tensor, "B D"]] | None]:
    """Returns wkv, and the last (A, B, m) where an initial one was given."""
    A, B, m = _first(k, state)
    ys = []
    for t, (kt, vt) in enumerate(zip(wide(k).unbind(1), wide(v).unbind(1), strict=True)):
        ys.append(_average(A, B, m, kt, vt, bonus))
        top = torch.maximum(m + log_decay, kt).detach()
        old, new = torch.exp(m + log_decay - top), torch.exp(kt - top)
        real = torch.ones_like(m, dtype=torch.bool) if lengths is None else (t < lengths)[:, None]
        A, B = torch.where(real, old * A + new * vt, A), torch.where(real, old * B + new, B)
        m = torch.where(real, top, m)
    return torch.stack(ys, 1).to(v.dtype), None if state is None else (A, B, m)


@wkv.samples
def wkv_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, D: int, scale: float = 1.0) -> dict[str, Any]:
        return dict(
            k=make.normal(B, T, D, scale=scale), v=make.normal(B, T, D), log_decay=make.between(-2, 0, D),
            bonus=make.normal(D),
        )  # fmt: skip

    def state(B: int, D: int) -> Sums:
        return make.normal(B, D), make.between(0.5, 2, B, D), make.normal(B, D)

    for T in (1, 2, 7, 150):
        yield f"T={T}", dict(**inputs(2, T, 3), state=state(2, 3))
    yield "from nothing", inputs(2, 50, 3)
    nothing = (torch.zeros(2, 3, dtype=make.dtype), torch.zeros(2, 3, dtype=make.dtype),
               torch.full((2, 3), -torch.inf, dtype=make.dtype))  # fmt: skip
    yield "from an empty state", dict(**inputs(2, 20, 3), state=nothing)
    yield "keys of any size", dict(**inputs(2, 60, 3, scale=200.0), state=state(2, 3))
    growing = inputs(2, 150, 3)
    growing["k"] = growing["k"] * torch.arange(150, dtype=make.dtype)[:, None]
    yield "keys that grow", dict(**growing, state=state(2, 3))
    yield "ragged", dict(**inputs(3, 70, 2), state=state(3, 2), lengths=torch.tensor([0, 70, 33]))


@wkv.form("torch.scan", worth=lambda k, **_: "" if k.shape[1] > 8 else "few steps: the loop is faster")
def by_scan(
    k: Tensor, v: Tensor, log_decay: Tensor, bonus: Tensor, state: Sums | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Sums | None]:
    A, B, m = _first(k, state)
    keys, values = wide(k), wide(v)
    after = _largest(keys, log_decay, m.detach())
    before = torch.cat([m[:, None], after[:, :-1]], 1)
    old, new = ((x - after).to(keys.dtype).exp() for x in (before + log_decay, keys))
    steps = torch.stack([new * values, new], -1)
    every, last = linear_scan(old[..., None].expand_as(steps), steps, torch.stack([A, B], -1), lengths)
    A, B = torch.cat([torch.stack([A, B], -1)[:, None], every[:, :-1]], 1).unbind(-1)
    y = _average(A, B, before.to(keys.dtype), keys, values, bonus).to(v.dtype)
    if state is None:
        return y, None
    assert last is not None
    if lengths is None:
        return y, (*last.unbind(-1), after[:, -1].to(m.dtype))
    end = after.gather(1, (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, m.shape[1]))[:, 0]
    return y, (*last.unbind(-1), torch.where((lengths > 0)[:, None], end.to(m.dtype), m))


def _first(k: Tensor, state: Sums | None) -> Sums:
    if state is not None:
        return state
    zero = torch.zeros_like(wide(k[:, 0]))
    return zero, zero, torch.full_like(zero, -torch.inf)


def _average(A: Tensor, B: Tensor, m: Tensor, k: Tensor, v: Tensor, bonus: Tensor) -> Tensor:
    top = torch.maximum(m, bonus + k).detach()
    old, new = torch.exp(m - top), torch.exp(bonus + k - top)
    return (old * A + new * v) / (old * B + new)


@torch.no_grad()
def _largest(k: Tensor, log_decay: Tensor, m: Tensor) -> Tensor:
    """m after every step, in float64."""
    ages = log_decay.double() * torch.arange(1, k.shape[1] + 1, device=k.device)[:, None]
    undecayed = torch.cat([m[:, None].double(), k.double() - ages], 1)
    return ages + undecayed.cummax(1).values[:, 1:]
