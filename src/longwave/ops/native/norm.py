"""RMSNorm and LayerNorm with the residual, forwards and backwards, by one kernel."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.norm import layer_norm, rms_norm

_forward = kernel("norm", "u:ND residual:ND? weight:D bias:D? eps:float centre:int sum:ND? y:ND mean:N scale:N")
_backward = kernel("norm_backward", "s:ND weight:D mean:N scale:N dy:ND dsum:ND? centre:int ds:ND dweight:PD dbias:PD?")


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, residual, weight, bias, _, ctx.centre = inputs
    total, _, mean, scale = output
    ctx.there = residual is not None, bias is not None
    ctx.save_for_backward(x if residual is None else total, weight, mean, scale)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dsum: Tensor | None, dy: Tensor | None, *_: Any) -> Any:
    residual, bias = ctx.there
    s, weight, mean, scale = ctx.saved_tensors
    dy = torch.zeros_like(s) if dy is None else rows(dy)
    dsum = None if dsum is None or not residual else rows(dsum)
    ds, dweight, dbias = torch.ops.longwave.norm_backward(s, weight, mean, scale, dy, dsum, ctx.centre)
    return ds, ds if residual else None, dweight, dbias if bias else None, None, None


@define(
    "norm(Tensor x, Tensor? residual, Tensor weight, Tensor? bias, float eps, bool centre)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, centre: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total, y = x.new_empty(0 if residual is None else x.shape), x.new_empty(x.shape)
    mean, scale = x.new_empty(len(x)), x.new_empty(len(x))
    held = None if residual is None else total
    _forward(x, residual, weight, bias, eps, int(centre), held, y, mean, scale)
    return total, y, mean, scale


@define(
    "norm_backward(Tensor s, Tensor weight, Tensor mean, Tensor scale, Tensor dy, Tensor? dsum, bool centre)"
    " -> (Tensor, Tensor, Tensor)"
)
def backward(
    s: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, dy: Tensor, dsum: Tensor | None, centre: bool
) -> tuple[Tensor, Tensor, Tensor]:
    tasks = max(1, min(torch.get_num_threads(), len(s)))
    ds, dweight = s.new_empty(s.shape), s.new_zeros(tasks, s.shape[1])
    dbias = torch.zeros_like(dweight)
    _backward(s, weight, mean, scale, dy, dsum, int(centre), ds, dweight, dbias)
    return ds, dweight.sum(0), dbias.sum(0)


def _norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, eps: float, centre: bool
) -> tuple[Tensor, Tensor]:
    def flat(t: Tensor) -> Tensor:
        return rows(t.float().reshape(-1, t.shape[-1]))

    shift, other = None if bias is None else bias.float(), None if residual is None else flat(residual)
    total, y, *_ = torch.ops.longwave.norm(flat(x), other, weight.float(), shift, eps, centre)
    return y.view(x.shape).to(x.dtype), x if residual is None else total.view(x.shape).to(x.dtype)


@rms_norm.form("native", when=on_cpu)
def native_rms(x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    return _norm(x, weight, None, residual, eps, False)


@layer_norm.form("native", when=on_cpu)
def native_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    return _norm(x, weight, bias, residual, eps, True)
