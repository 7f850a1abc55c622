"""Recurrences over time: any cell, and the elementwise linear one.

    scan          y_t, s_t = cell(x_t, s_{t-1})
    linear_scan   h_t = a_t h_{t-1} + b_t

The elementwise one is associative, (a, b) then (a', b') = (a a', a' b + b'), so its steps can be grouped freely:
`blocks` runs about sqrt(T) steps for all blocks at once, then carries the state from block to block, O(T) work in
all. Its gradient is the same recurrence backwards: with g_t the gradient of h_t, e_t = g_t + a_{t+1} e_{t+1}, then
db_t = e_t and da_t = e_t h_{t-1}.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from jaxtyping import Inexact, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.state import AnyState, State


def scan(
    cell: Callable[[Any, AnyState], tuple[Tensor, AnyState]],
    x: Any,
    state: AnyState,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Tensor, AnyState]:
    """Run `cell(x_t, state) -> (y_t, state)` over time; x is [B, T, ...] or a tuple of such; pads keep the state."""
    ys = []
    pieces, structure = pytree.tree_flatten(x)
    for t, xt in enumerate(zip(*(piece.unbind(1) for piece in pieces), strict=True)):
        y, new = cell(pytree.tree_unflatten(list(xt), structure), state)
        ys.append(y)
        state = new if lengths is None else State.where(t < lengths, new, state)
    return torch.stack(ys, 1), state


@op
def linear_scan(
    a: Inexact[Tensor, "B T ..."],
    b: Inexact[Tensor, "B T ..."],
    h: Inexact[Tensor, "B ..."] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Inexact[Tensor, "B T ..."], Inexact[Tensor, "B ..."] | None]:
    """h_t = a_t h_{t-1} + b_t, elementwise. Returns all h, and the last where an initial one was given."""
    a, b = _identity_at_pads(a, b, lengths)
    last = torch.zeros_like(b[:, 0]) if h is None else h
    steps = []
    for at, bt in zip(a.unbind(1), b.unbind(1), strict=True):
        last = at * last + bt
        steps.append(last)
    return torch.stack(steps, 1), None if h is None else last


@linear_scan.samples
def linear_scan_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for T in (1, 2, 37):
        yield f"T={T}", dict(a=make.between(-1, 1, 2, T, 3), b=make.normal(2, T, 3), h=make.normal(2, 3))
    yield "from zero", dict(a=make.between(0, 1, 2, 50, 3), b=make.normal(2, 50, 3))
    lengths = torch.tensor([0, 70, 33])
    yield (
        "ragged",
        dict(a=make.between(0, 1, 3, 70, 2, 2), b=make.normal(3, 70, 2, 2), h=make.normal(3, 2, 2), lengths=lengths),
    )
    reset = (make.between(0, 1, 1, 40, 3) > 0.2).to(make.dtype).requires_grad_(make.grad)
    yield "resets", dict(a=reset, b=make.normal(1, 40, 3), h=make.normal(1, 3))
    spin = make.complex(make.between(-0.7, 0.7, 2, 30, 3), make.between(-0.7, 0.7, 2, 30, 3))
    yield "complex", dict(a=spin, b=make.complex(make.normal(2, 30, 3), make.normal(2, 30, 3)),
                          h=make.complex(make.normal(2, 3), make.normal(2, 3)))  # fmt: skip


@linear_scan.form("torch.blocks", worth=lambda b, **_: "" if b.shape[1] > 8 else "few steps: the loop is faster")
def blocks(
    a: Tensor, b: Tensor, h: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    a, b = _identity_at_pads(a, b, lengths)
    first = torch.zeros_like(b[:, 0]) if h is None else h
    every = _Blocks.apply(a.expand_as(b), b, first)
    return every, None if h is None else every[:, -1]


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, first: Tensor) -> Tensor:
        every = _in_blocks(a, b, first)
        ctx.save_for_backward(a, every, first)
        return every

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, every, first = ctx.saved_tensors
        a = a.conj()
        later = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
        db = linear_scan(later.flip(1), grad.flip(1))[0].flip(1)
        before = torch.cat([first[:, None], every[:, :-1]], 1)
        return db * before.conj(), db, a[:, 0] * db[:, 0]


def _in_blocks(a: Tensor, b: Tensor, first: Tensor) -> Tensor:
    B, T, rest = b.shape[0], b.shape[1], b.shape[2:]
    size = max(1, math.isqrt(T))
    n = -(-T // size)
    if n * size > T:  # identity steps at the end
        a = torch.cat([a, a.new_ones(B, n * size - T, *rest)], 1)
        b = torch.cat([b, b.new_zeros(B, n * size - T, *rest)], 1)
    a, b = a.reshape(B, n, size, *rest), b.reshape(B, n, size, *rest)
    local, decay = torch.empty_like(b), torch.empty_like(b)  # as if each block began at zero; product of a so far
    local[:, :, 0], decay[:, :, 0] = b[:, :, 0], a[:, :, 0]
    for i in range(1, size):
        torch.addcmul(b[:, :, i], a[:, :, i], local[:, :, i - 1], out=local[:, :, i])
        torch.mul(a[:, :, i], decay[:, :, i - 1], out=decay[:, :, i])
    starts = [first]
    for i in range(n - 1):
        starts.append(decay[:, i, -1] * starts[-1] + local[:, i, -1])
    every = torch.addcmul(local, decay, torch.stack(starts, 1)[:, :, None])
    return every.reshape(B, n * size, *rest)[:, :T]


def _identity_at_pads(a: Tensor, b: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    return zero_pads(wide(a), lengths, fill=1.0), zero_pads(wide(b), lengths)
