"""Rotary positions; the backward pass turns back."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.rotary import rotary

_rotary = kernel("rotary", "u:BTHK pos:PT/int64 rates:N/float64 gain:float back:int y:BTHK")


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, pos, rates, ctx.gain, ctx.back = inputs
    ctx.save_for_backward(pos, rates)


def _gradients(ctx: Any, grad: Tensor) -> Any:
    dx = torch.ops.longwave.rotary(rows(grad), *ctx.saved_tensors, ctx.gain, not ctx.back)
    return dx, None, None, None, None


@define("rotary(Tensor x, Tensor pos, Tensor rates, float gain, bool back) -> Tensor", _keep, _gradients)
def forward(x: Tensor, pos: Tensor, rates: Tensor, gain: float, back: bool) -> Tensor:
    y = x.new_empty(x.shape)
    _rotary(x, pos, rates, gain, int(back), y)
    return y


@rotary.form("native", when=lambda x, rates, **_: "rates without gradient only" if rates.requires_grad else on_cpu(x=x))
def native(x: Tensor, pos: Tensor, rates: Tensor, gain: float = 1.0) -> Tensor:
    return torch.ops.longwave.rotary(rows(x.float()), rows(pos.long()), rows(rates.double()), gain, False).to(x.dtype)
