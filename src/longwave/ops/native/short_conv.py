"""The short convolution with its activation, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.errors import choose
from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.ragged import last_tokens
from longwave.ops.short_conv import ACTIVATIONS, short_conv

_INPUTS = "u:BTD weight:WD bias:D? window:BMD? silu:int"
_forward = kernel("short_conv", f"{_INPUTS} y:BTD")
_backward = kernel("short_conv_backward", f"{_INPUTS} dy:BTD du:BTD dwindow:BMD? dweight:PWD dbias:PD?")
_SCHEMA = "Tensor u, Tensor weight, Tensor? bias, Tensor? window, bool silu"
_BLOCK = 64  # steps of time that the kernel takes at once


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.silu = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad: Tensor) -> Any:
    inputs = ctx.saved_tensors
    *found, dbias, dwindow = torch.ops.longwave.short_conv_backward(*inputs, ctx.silu, rows(grad))
    return *found, None if inputs[2] is None else dbias, None if inputs[3] is None else dwindow, None


@define(f"short_conv({_SCHEMA}) -> Tensor", _keep, _gradients)
def forward(u: Tensor, weight: Tensor, bias: Tensor | None, window: Tensor | None, silu: bool) -> Tensor:
    y = u.new_empty(u.shape)
    _forward(u, weight, bias, window, int(silu), y)
    return y


@define(f"short_conv_backward({_SCHEMA}, Tensor dy) -> (Tensor, Tensor, Tensor, Tensor)")
def backward(
    u: Tensor, weight: Tensor, bias: Tensor | None, window: Tensor | None, silu: bool, dy: Tensor
) -> tuple[Tensor, ...]:
    blocks, threads = -(-u.shape[1] // _BLOCK), torch.get_num_threads()
    tasks = len(u) * min(blocks, -(-threads // len(u)))
    du, dwindow = u.new_empty(u.shape), u.new_empty(0) if window is None else u.new_empty(window.shape)
    dweight, dbias = weight.new_zeros(tasks, *weight.shape), weight.new_zeros(tasks, weight.shape[1])
    given = None if bias is None else dbias, None if window is None else dwindow
    _backward(u, weight, bias, window, int(silu), dy, du, given[1], dweight, given[0])
    return du, dweight.sum(0), dbias.sum(0), dwindow


@short_conv.form("native", when=on_cpu, worth=lambda x, **_: "" if x.shape[1] > 4 else "few steps")
def native(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, window: Tensor | None = None,
    lengths: Tensor | None = None, activation: str = "none",
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    choose("activation", activation, ACTIVATIONS)
    held = weight.shape[1] - 1
    past = None if window is None or not held else rows(window.float())
    shift = None if bias is None else bias.float()
    y = torch.ops.longwave.short_conv(rows(x.float()), rows(weight.mT.float()), shift, past, activation == "silu")
    if window is None:
        return y.to(x.dtype), None
    if lengths is None:
        return y.to(x.dtype), torch.cat([window, x[:, -held:]], 1)[:, -held:] if held else window
    return y.to(x.dtype), last_tokens(torch.cat([window, x], 1), held, lengths + held)
