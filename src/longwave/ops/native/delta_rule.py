"""The delta rule, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.delta_rule import delta_rule
from longwave.ops.native.bind import define, kernel, on_cpu, rows

_SIGNATURE = (
    "q:BTHK k:BTHK v:BTHV a:BTHK b:BTHK g:BTHE? first:BHKV? lengths:B/int64? y:BTHV? u:BTHV? last:BHKV?"
    " grad_y:BTHV? grad_last:BHKV? dq:BTHK? dk:BTHK? dv:BTHV? da:BTHK? db:BTHK? dg:BTHE? grad_first:BHKV?"
)
_forward = kernel("delta_rule", _SIGNATURE)
_backward = kernel("delta_rule_backward", _SIGNATURE)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor | None, _: Tensor | None, grad_last: Tensor | None) -> Any:
    *inputs, u = ctx.saved_tensors
    grad_y = torch.zeros_like(u) if grad_y is None else rows(grad_y)
    grads = torch.ops.longwave.delta_rule_backward(*inputs, u, grad_y, None if grad_last is None else rows(grad_last))
    return *(None if x is None else grad for x, grad in zip(inputs[:7], grads, strict=True)), None


@define(
    "delta_rule(Tensor q, Tensor k, Tensor v, Tensor a, Tensor b, Tensor? g, Tensor? first, Tensor? lengths)"
    " -> (Tensor, Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, g: Tensor | None, first: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, u = v.new_empty(v.shape), v.new_empty(v.shape)
    last = v.new_empty(*v.shape[:1], v.shape[2], q.shape[3], v.shape[3])
    _forward(q, k, v, a, b, g, first, lengths, y, u, last, *[None] * 9)
    return y, u, last


@define(
    "delta_rule_backward(Tensor q, Tensor k, Tensor v, Tensor a, Tensor b, Tensor? g, Tensor? first, Tensor? lengths,"
    " Tensor u, Tensor grad_y, Tensor? grad_last) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def backward(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, g: Tensor | None, first: Tensor | None,
    lengths: Tensor | None, u: Tensor, grad_y: Tensor, grad_last: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    dq, dk, dv, da, db = (x.new_empty(x.shape) for x in (q, k, v, a, b))
    dg = None if g is None else g.new_empty(g.shape)
    dfirst = v.new_empty(*v.shape[:1], v.shape[2], q.shape[3], v.shape[3])
    _backward(
        q, k, v, a, b, g, first, lengths, None, u, None, grad_y, grad_last, dq, dk, dv, da, db, dg, dfirst
    )  # fmt: skip
    return dq, dk, dv, da, db, v.new_empty(0) if dg is None else dg, dfirst


@delta_rule.form("native", when=on_cpu)
def native(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, log_decay: Tensor | None = None,
    state: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    g = log_decay if log_decay is None or log_decay.ndim == 4 else log_decay[..., None]
    inputs = (rows(x.float()) for x in (q, k, v, a, b))
    g, first = (None if x is None else rows(x.float()) for x in (g, state))
    y, _, last = torch.ops.longwave.delta_rule(*inputs, g, first, None if lengths is None else lengths.long())
    return y.to(v.dtype), None if state is None else last
