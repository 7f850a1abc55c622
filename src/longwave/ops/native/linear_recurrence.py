"""The matrix recurrence of linear attention, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.native.bind import define, kernel, on_cpu, rows

_SIGNATURE = (
    "q:BTGK k:BTGK v:BTHV g:BTHE? first:BHKV? lengths:B/int64? y:BTHV? last:BHKV? grad_y:BTHV? grad_last:BHKV?"
    " dq:PBTGK? dk:PBTGK? dv:BTHV? dg:BTHE? grad_first:BHKV?"
)
_forward = kernel("linear_recurrence", _SIGNATURE)
_backward = kernel("linear_recurrence_backward", _SIGNATURE)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None) -> Any:
    q, k, v, g, first, lengths = ctx.saved_tensors
    grad_y = torch.zeros_like(v) if grad_y is None else rows(grad_y)
    grads = torch.ops.longwave.linear_recurrence_backward(
        q, k, v, g, first, lengths, grad_y, None if grad_last is None else rows(grad_last)
    )
    given = (True, True, True, g is not None, first is not None)
    return *(grad if wanted else None for grad, wanted in zip(grads, given, strict=True)), None


@define(
    "linear_recurrence(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? first, Tensor? lengths) -> (Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, first: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    y = v.new_empty(v.shape)
    last = v.new_empty(*v.shape[:1], v.shape[2], q.shape[3], v.shape[3])
    _forward(q, k, v, g, first, lengths, y, last, *[None] * 7)
    return y, last


@define(
    "linear_recurrence_backward(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? first, Tensor? lengths,"
    " Tensor grad_y, Tensor? grad_last) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def backward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, first: Tensor | None, lengths: Tensor | None, grad_y: Tensor,
    grad_last: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    heads, groups = v.shape[2], q.shape[2]
    shares = max(
        1, min(heads // groups, torch.get_num_threads() // (len(q) * groups))
    )  # one a thread where groups are few
    dq, dk = q.new_empty(shares, *q.shape), q.new_empty(shares, *q.shape)
    dv, dg = v.new_empty(v.shape), None if g is None else g.new_empty(g.shape)
    grad_first = v.new_empty(len(v), heads, q.shape[3], v.shape[3])
    _backward(q, k, v, g, first, lengths, None, None, grad_y, grad_last, dq, dk, dv, dg, grad_first)
    dq, dk = (x[0] if shares == 1 else x.sum(0) for x in (dq, dk))
    return dq, dk, dv, v.new_empty(0) if dg is None else dg, grad_first


@linear_recurrence.form("native", when=on_cpu)
def native(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None, state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    g = log_decay if log_decay is None or log_decay.ndim == 4 else log_decay[..., None]
    q, k, values = (rows(x.float()) for x in (q, k, v))
    g, first = (None if x is None else rows(x.float()) for x in (g, state))
    lengths = None if lengths is None else lengths.long()
    y, last = torch.ops.longwave.linear_recurrence(q, k, values, g, first, lengths)
    return y.to(v.dtype), None if state is None else last
