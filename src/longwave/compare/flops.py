"""Floating-point operations, counted: products, convolutions and Fourier transforms by their formulas, and one for
every number that an elementwise operation or a sum gives or takes.

The ops run in their torch forms, whose arithmetic torch can see; kernels of our own do the same sums faster.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from longwave import ops
from longwave.models.model import Model

FORMULAS = dict(flop_registry)  # torch's own, by operation; and those of its attention for the CPU, which it leaves out
SUMS = {"sum", "mean", "cumsum", "cumprod", "logsumexp", "_softmax", "_log_softmax", "amax", "var_mean"}


def _attended(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    return 2 * q.shape[:3].numel() * k.shape[2] * (q.shape[3] + v.shape[3])  # by head, and grouped heads share keys


def _attended_back(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    return 2 * q.shape[:3].numel() * k.shape[2] * (3 * q.shape[3] + 2 * v.shape[3])  # the scores once more


FORMULAS[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu] = _attended
FORMULAS[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward] = _attended_back


class Counting(TorchDispatchMode):
    """Inside, `self.count` grows by what is computed, and `self.products` by the share of products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in FORMULAS:
            self._multiplied(FORMULAS[packet](*args, **kwargs, out_val=out))
        elif packet.__name__.startswith("_fft_"):
            size = max(args[0].numel(), out.numel())
            self.count += int(5 * size * math.log2(max(2, args[0].shape[-1])))
        elif packet.__name__.startswith("mkldnn_rnn_layer"):  # an LSTM in one
            tokens, weights = args[0].shape[:2].numel(), args[1].numel() + args[2].numel()
            self._multiplied(tokens * weights * (4 if packet.__name__.endswith("backward") else 2))
        elif packet.__name__ in SUMS:
            self.count += args[0].numel()
        elif torch.Tag.pointwise in func.tags and isinstance(out, Tensor):
            self.count += out.numel()
        return out

    def _multiplied(self, flops: int) -> None:
        self.products += flops
        self.count += flops


def training_flops(model: Model, task: Any) -> float:
    """Of the loss and its gradients, on one sequence of the task."""
    batch = tuple(each[:1] for each in task.batch(0))
    with ops.use("torch"), Counting() as counting:
        task.loss(model, batch)[0].backward()
    model.zero_grad()
    return float(counting.count)
