"""Float32 products by oneDNN, which torch carries but takes for half precision only. Forwards and backwards.

Which of the two is faster is a matter of the processor, so both are timed, once a process, at the first large product.
"""

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.ops.linear import linear
from longwave.ops.native.bind import define

SMALL = 1 << 22  # multiplications: a call of ours costs some 10 us more than one of torch
FASTER = 1.2  # times as fast, to be taken: a difference that noise does not turn round


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, W = ctx.saved_tensors
    want_x, want_W, want_bias = ctx.needs_input_grad
    flat = grad.reshape(-1, grad.shape[-1])
    dx = product(grad, W.t(), None) if want_x else None
    dW = over_rows(flat, x.reshape(-1, x.shape[-1])) if want_W else None
    return dx, dW, flat.sum(0) if want_bias else None


@define("product(Tensor x, Tensor W, Tensor? bias) -> Tensor", _keep, _gradients)
def _product(x: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(_dense(x), _dense(W), bias, "none", [], "")


def _dense(x: Tensor) -> Tensor:
    """Of the transpose of a slice oneDNN makes a product in 5 s that takes it 1 ms otherwise."""
    return x if x.ndim == 2 and x.t().is_contiguous() else x.contiguous()


product = torch.ops.longwave.product


def over_rows(x: Tensor, y: Tensor) -> Tensor:
    """x^T y, summed over many rows. The narrower comes first: the other way round takes up to half as long again."""
    return product(x.t(), y.t(), None) if x.shape[1] <= y.shape[1] else product(y.t(), x.t(), None).t()


def can_multiply(*tensors: Tensor | None) -> str:
    given = [x for x in tensors if x is not None]
    if any(x.device.type != "cpu" for x in given):
        return "a product for the CPU only"
    if any(x.dtype is not torch.float32 for x in given):
        return "float32 only: torch multiplies half precision by oneDNN as it is"
    if torch.is_autocast_enabled("cpu"):
        return "autocast chooses the product"
    if any(x.numel() == 0 for x in given):
        return "nothing to multiply"
    return _missing()


@torch.compiler.assume_constant_result
def _missing() -> str:
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return "" if there else "this torch has no product by oneDNN"


def _when(x: Tensor, W: Tensor, bias: Tensor | None = None) -> str:
    return can_multiply(x, W, bias)


def _worth(x: Tensor, W: Tensor, bias: Tensor | None = None) -> str:
    if x.numel() * len(W) < SMALL or x.numel() < 8 * x.shape[-1]:
        return "a small product"
    return "" if onednn_speed() >= FASTER else "torch's own product is as fast here"


_speed: list[float] = []


@torch.compiler.assume_constant_result
def onednn_speed() -> float:
    """How many times as fast as torch's product that of oneDNN is on this machine; 0 where there is none."""
    if not _speed:
        _speed.append(0.0 if _missing() else _measure())
    return _speed[0]


@torch.no_grad()
def _measure() -> float:
    x, W = torch.ones(384, 512), torch.ones(512, 512)
    best = [float("inf"), float("inf")]
    for _ in range(10):  # in turns; the fastest of each is the one that nothing disturbed
        for i, run in enumerate((F.linear, _product)):
            began = time.perf_counter()
            run(x, W, None)
            best[i] = min(best[i], time.perf_counter() - began)
    return best[0] / best[1]


@linear.form("native.onednn", when=_when, worth=_worth)
def native(x: Tensor, W: Tensor, bias: Tensor | None = None) -> Tensor:
    return product(x, W, bias)
