"""The long convolution by an FFT with channels in the lanes, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.fftconv import fftconv
from longwave.ops.native.bind import define, kernel, on_cpu, rows

_forward = kernel("fftconv", "u:BTD h:FLD y:BTD")
_backward = kernel("fftconv_backward", "u:BTD h:FLD dy:BTD du:BTD dh:FLD")


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.longwave.fftconv_backward(*ctx.saved_tensors, rows(grad))


@define("fftconv(Tensor u, Tensor h) -> Tensor", _keep, _gradients)
def forward(u: Tensor, h: Tensor) -> Tensor:
    y = u.new_empty(u.shape)
    _forward(u, h, y)
    return y


@define("fftconv_backward(Tensor u, Tensor h, Tensor dy) -> (Tensor, Tensor)")
def backward(u: Tensor, h: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    du, dh = u.new_empty(u.shape), h.new_empty(h.shape)
    _backward(u, h, dy, du, dh)
    return du, dh


@fftconv.form("native", when=on_cpu, worth=lambda u, **_: "" if u.shape[1] > 1 else "one step is one product")
def native(u: Tensor, h: Tensor) -> Tensor:
    filters = rows(h.float())
    return torch.ops.longwave.fftconv(rows(u.float()), filters if h.ndim == 3 else filters[None]).to(u.dtype)
