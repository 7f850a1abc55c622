"""Mamba's scan, forwards and backwards."""

import math
from typing import Any

import torch
from torch import Tensor

from longwave.ops.native.bind import define, kernel, on_cpu, rows, split
from longwave.ops.ragged import zero_pads
from longwave.ops.selective_scan import selective_scan

_forward = kernel(
    "selective_scan",
    "u:bTD dt:bTD A:ND B:bTN C:bTN skip:D? z:bTD? first:bND? y:bTD last:bND starts:bcND? steps:int",
)
_backward = kernel(
    "selective_scan_backward",
    "u:bTD dt:bTD A:ND B:bTN C:bTN skip:D? z:bTD? starts:bcND grad_y:bTD? grad_last:bND?"
    " grad_u:bTD grad_dt:bTD grad_A:bND grad_B:pbTN grad_C:pbTN grad_skip:bD? grad_z:bTD? grad_first:bND steps:int",
)


def _steps(N: int) -> int:
    """Of a chunk: what the backward pass keeps of it stays within the cache."""
    return max(8, min(64, 1024 // N))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.given = [x is not None for x in inputs[:8]]
    ctx.save_for_backward(*inputs[:7], output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None, _: None) -> Any:
    grad_y, grad_last = (None if g is None else rows(g) for g in (grad_y, grad_last))
    found = torch.ops.longwave.selective_scan_backward(*ctx.saved_tensors, grad_y, grad_last)
    return *(grad if there else None for grad, there in zip(found, ctx.given, strict=True)), None


@define(
    "selective_scan(Tensor u, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? skip, Tensor? z, Tensor? first,"
    " bool keep) -> (Tensor, Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, skip: Tensor | None, z: Tensor | None,
    first: Tensor | None, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`keep`: also the states at the starts of chunks, for the backward pass."""
    b, T, D = u.shape
    N = A.shape[0]
    y, last = u.new_empty(b, T, D), u.new_empty(b, N, D)
    starts = u.new_empty(b, -(-T // _steps(N)) if keep else 0, N, D)
    _forward(u, dt, A, B, C, skip, z, first, y, last, starts if keep else None, _steps(N))
    return y, last, starts


@define(
    "selective_scan_backward(Tensor u, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? skip, Tensor? z,"
    " Tensor starts, Tensor? grad_y, Tensor? grad_last)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def backward(
    u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, skip: Tensor | None, z: Tensor | None,
    starts: Tensor, grad_y: Tensor | None, grad_last: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    b, T, D = u.shape
    N = A.shape[0]
    pieces = split(b, D)  # each sums the gradients of B and C by itself
    grad_u, grad_dt, grad_z = u.new_empty(b, T, D), u.new_empty(b, T, D), u.new_empty(z.shape if z is not None else 0)
    grad_A, grad_first, grad_skip = u.new_empty(b, N, D), u.new_empty(b, N, D), u.new_empty(b, D)
    grad_B, grad_C = u.new_empty(pieces, b, T, N), u.new_empty(pieces, b, T, N)
    _backward(
        u, dt, A, B, C, skip, z, starts, grad_y, grad_last, grad_u, grad_dt, grad_A, grad_B, grad_C,
        None if skip is None else grad_skip, None if z is None else grad_z, grad_first, _steps(N),
    )  # fmt: skip
    return grad_u, grad_dt, grad_A.sum(0), grad_B.sum(0), grad_C.sum(0), grad_skip.sum(0), grad_z, grad_first


@selective_scan.form("native", when=on_cpu)
def native(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, z: Tensor | None = None,
    state: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    dt = zero_pads(dt.float(), lengths, fill=-math.inf)  # there Delta = 0: time stands still
    given = (x, dt, A.mT, B, C, D, z, None if state is None else state.mT)
    inputs = [None if t is None else rows(t.float()) for t in given]
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    y, last, _ = torch.ops.longwave.selective_scan(*inputs, keep)
    return y.to(x.dtype), None if state is None else last.mT.contiguous()
