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

SUMS = {"sum", "mean", "cumsum", "cumprod", "logsumexp", "_softmax", "_log_softmax", "amax", "var_mean"}


class Counting(TorchDispatchMode):
    """Inside, `self.count` grows by what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in flop_registry:
            self.count += flop_registry[packet](*args, **kwargs, out_val=out)
        elif packet.__name__.startswith("_fft_"):
            size = max(args[0].numel(), out.numel())
            self.count += int(5 * size * math.log2(max(2, args[0].shape[-1])))
        elif packet.__name__.startswith("mkldnn_rnn_layer"):  # an LSTM in one
            tokens, weights = args[0].shape[:2].numel(), args[1].numel() + args[2].numel()
            self.count += tokens * weights * (4 if packet.__name__.endswith("backward") else 2)
        elif packet.__name__ in SUMS:
            self.count += args[0].numel()
        elif torch.Tag.pointwise in func.tags and isinstance(out, Tensor):
            self.count += out.numel()
        return out


def training_flops(model: Model, task: Any) -> float:
    """Of the loss and its gradients, on one sequence of the task."""
    batch = tuple(each[:1] for each in task.batch(0))
    with ops.use("torch"), Counting() as counting:
        task.loss(model, batch)[0].backward()
    model.zero_grad()
    return float(counting.count)
