"""GELU, product and GLU: the two nonlinearities by kernels that read and write what the product multiplies."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.ops.glu_linear import glu_linear
from longwave.ops.linear import linear
from longwave.ops.native.bind import define, kernel, on_cpu, rows

HALF = {True: "/bfloat16", False: ""}
_gelu = {h: kernel("gelu" + "_half" * h, f"x:ND y:ND{HALF[h]}") for h in HALF}
_gelu_backward = {h: kernel("gelu_backward" + "_half" * h, f"x:ND dy:ND{HALF[h]} dx:ND") for h in HALF}
_glu = {h: kernel("glu" + "_half" * h, f"h:NE{HALF[h]} bias:E y:ND") for h in HALF}
_glu_backward = {
    h: kernel("glu_backward" + "_half" * h, f"h:NE{HALF[h]} bias:E dy:ND dh:NE{HALF[h]} dbias:PE") for h in HALF
}


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3], *output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor, *_: Any) -> Any:
    return (*torch.ops.longwave.glu_linear_backward(*ctx.saved_tensors, rows(dy)), None)


@define("glu_linear(Tensor x, Tensor W, Tensor bias, bool half) -> (Tensor, Tensor, Tensor)", _keep, _gradients)
def forward(x: Tensor, W: Tensor, bias: Tensor, half: bool) -> tuple[Tensor, Tensor, Tensor]:
    kind = torch.bfloat16 if half else torch.float32
    g, y = x.new_empty(x.shape, dtype=kind), x.new_empty(len(x), len(W) // 2)
    _gelu[half](x, g)
    h = F.linear(g, W.to(kind)) if half else linear(g, W)
    _glu[half](h, bias, y)
    return y, g, h


@define(
    "glu_linear_backward(Tensor x, Tensor W, Tensor bias, Tensor g, Tensor h, Tensor dy) -> (Tensor, Tensor, Tensor)"
)
def backward(x: Tensor, W: Tensor, bias: Tensor, g: Tensor, h: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    half = h.dtype is torch.bfloat16
    tasks = max(1, min(torch.get_num_threads(), len(x)))
    dh, dx, dbias = torch.empty_like(h), torch.empty_like(x), x.new_zeros(tasks, h.shape[1])
    _glu_backward[half](h, bias, dy, dh, dbias)
    _gelu_backward[half](x, dh @ W.to(h.dtype), dx)
    return dx, (dh.t() @ g).to(W.dtype), dbias.sum(0)


@glu_linear.form("native", when=on_cpu, worth=lambda x, **_: "" if x.numel() >= 1 << 12 else "a small product")
def native(x: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    half = x.dtype is torch.bfloat16 or torch.is_autocast_enabled("cpu")
    flat = rows(x.float().reshape(-1, x.shape[-1]))
    y = torch.ops.longwave.glu_linear(flat, W.float(), bias.float(), half)[0]
    return y.view(*x.shape[:-1], y.shape[-1]).to(x.dtype)
