"""The elementwise linear recurrence, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.scan import _identity_at_pads, linear_scan

_forward = kernel("linear_scan", "a:BTD b:BTD first:BD? every:BTD last:BD")
_backward = kernel(
    "linear_scan_backward",
    "a:BTD every:BTD first:BD? grad_every:BTD? grad_last:BD? grad_a:BTD grad_b:BTD grad_first:BD",
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    a, _, first = inputs
    ctx.save_for_backward(a, output[0], first)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_every: Tensor | None, grad_last: Tensor | None) -> Any:
    a, every, first = ctx.saved_tensors
    grad_every = None if grad_every is None else rows(grad_every)
    grad_a, grad_b, grad_first = torch.ops.longwave.linear_scan_backward(a, every, first, grad_every, grad_last)
    return grad_a, grad_b, None if first is None else grad_first


@define("linear_scan(Tensor a, Tensor b, Tensor? first) -> (Tensor, Tensor)", _keep, _gradients)
def forward(a: Tensor, b: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    every, last = b.new_empty(b.shape), b.new_empty(b.shape[0], b.shape[2])
    _forward(a, b, first, every, last)
    return every, last


@define(
    "linear_scan_backward(Tensor a, Tensor every, Tensor? first, Tensor? grad_every, Tensor? grad_last)"
    " -> (Tensor, Tensor, Tensor)"
)
def backward(
    a: Tensor, every: Tensor, first: Tensor | None, grad_every: Tensor | None, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad_a, grad_b = every.new_empty(every.shape), every.new_empty(every.shape)
    grad_first = every.new_empty(every.shape[0], every.shape[2])
    _backward(a, every, first, grad_every, grad_last, grad_a, grad_b, grad_first)
    return grad_a, grad_b, grad_first


@linear_scan.form("native", when=on_cpu)
def native(
    a: Tensor, b: Tensor, h: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    a, b = _identity_at_pads(a, b, lengths)
    wide_rows = (rows(x.flatten(2)) if x.ndim > 2 else x[..., None] for x in (a.expand_as(b), b))
    first = None if h is None else rows(h.float().flatten(1)) if h.ndim > 1 else h.float()[:, None]
    every, last = torch.ops.longwave.linear_scan(*wide_rows, first)
    return every.view_as(b), None if h is None else last.view_as(h)
