"""RWKV's WKV, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.wkv import Sums, wkv

CHUNK = 32  # K in wkv.cpp

_forward = kernel(
    "wkv",
    "k:bTD v:bTD log_decay:D bonus:D first_A:bD? first_B:bD? first_m:bD? lengths:b/int64?"
    " y:bTD A:bD B:bD m:bD starts:bc3D?",
)
_backward = kernel(
    "wkv_backward",
    "k:bTD v:bTD log_decay:D bonus:D lengths:b/int64? starts:bc3D last_m:bD grad_y:bTD? grad_A:bD? grad_B:bD?"
    " grad_m:bD? grad_k:bTD grad_v:bTD grad_decay:bD grad_bonus:bD grad_first_A:bD grad_first_B:bD grad_first_m:bD",
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    k, v, log_decay, bonus, A, _, _, lengths, _ = inputs
    *_, last_m, starts = output
    ctx.begins = A is not None
    ctx.save_for_backward(k, v, log_decay, bonus, lengths, starts, last_m)
    ctx.mark_non_differentiable(starts)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, *grads: Tensor | None) -> Any:
    grads = tuple(None if g is None else rows(g) for g in grads[:4])
    *found, A, B, m = torch.ops.longwave.wkv_backward(*ctx.saved_tensors, *grads)
    return *found, *((A, B, m) if ctx.begins else (None, None, None)), None, None


@define(
    "wkv(Tensor k, Tensor v, Tensor log_decay, Tensor bonus, Tensor? A, Tensor? B, Tensor? m, Tensor? lengths,"
    " bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    k: Tensor, v: Tensor, log_decay: Tensor, bonus: Tensor, A: Tensor | None, B: Tensor | None, m: Tensor | None,
    lengths: Tensor | None, keep: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """`keep`: also the sums at the starts of chunks, for the backward pass."""
    b, T, D = k.shape
    y, last = v.new_empty(b, T, D), [v.new_empty(b, D) for _ in range(3)]
    starts = v.new_empty(b, -(-T // CHUNK) if keep else 0, 3, D)
    _forward(k, v, log_decay, bonus, A, B, m, lengths, y, *last, starts if keep else None)
    return y, *last, starts


@define(
    "wkv_backward(Tensor k, Tensor v, Tensor log_decay, Tensor bonus, Tensor? lengths, Tensor starts, Tensor last_m,"
    " Tensor? grad_y, Tensor? grad_A, Tensor? grad_B, Tensor? grad_m)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def backward(
    k: Tensor, v: Tensor, log_decay: Tensor, bonus: Tensor, lengths: Tensor | None, starts: Tensor, last_m: Tensor,
    grad_y: Tensor | None, grad_A: Tensor | None, grad_B: Tensor | None, grad_m: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    b, T, D = k.shape
    grad_k, grad_v = v.new_empty(b, T, D), v.new_empty(b, T, D)
    by_row = [v.new_empty(b, D) for _ in range(5)]
    _backward(k, v, log_decay, bonus, lengths, starts, last_m, grad_y, grad_A, grad_B, grad_m, grad_k, grad_v, *by_row)
    grad_decay, grad_bonus, *grad_first = by_row
    return grad_k, grad_v, grad_decay.sum(0), grad_bonus.sum(0), *grad_first


@wkv.form("native", when=on_cpu)
def native(
    k: Tensor, v: Tensor, log_decay: Tensor, bonus: Tensor, state: Sums | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Sums | None]:
    inputs = tuple(rows(t.float()) for t in (k, v, log_decay, bonus, *(state or ())))
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    first = inputs[4:] or (None, None, None)
    lengths = None if lengths is None else lengths.long().contiguous()
    y, A, B, m, _ = torch.ops.longwave.wkv(*inputs[:4], *first, lengths, keep)
    return y.to(v.dtype), None if state is None else (A, B, m)
