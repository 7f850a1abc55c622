"""The cross-entropy of a slice of logits, with its gradient in the same sweep."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from longwave.ops.loss import IGNORE, cross_entropy, sliced
from longwave.ops.native.bind import define, kernel, on_cpu, rows

_logit_gradient = kernel("logit_gradient", "logits:NP target:N/int64 weight:float others:float losses:N gradient:NP")


@define("logit_gradient(Tensor logits, Tensor target, float weight, float others) -> (Tensor, Tensor)")
def forward(logits: Tensor, target: Tensor, weight: float, others: float) -> tuple[Tensor, Tensor]:
    if not isinstance(target, FakeTensor) and ((target >= logits.shape[1]) | (target < 0) & (target != IGNORE)).any():
        raise IndexError(f"a target is none of the {logits.shape[1]} classes, and not {IGNORE}")
    losses, gradient = logits.new_empty(len(logits)), logits.new_empty(logits.shape)
    _logit_gradient(logits, target, weight, others, losses, gradient)
    return losses, gradient


def _gradient(logits: Tensor, target: Tensor, true: float, others: float) -> tuple[Tensor, Tensor]:
    losses, gradient = torch.ops.longwave.logit_gradient(rows(logits.float()), target.contiguous(), true, others)
    return losses, gradient.to(logits.dtype)


@cross_entropy.form("native", when=on_cpu)
def native(
    h: Tensor, W: Tensor, target: Tensor, bias: Tensor | None = None, smoothing: float = 0.0, convention: str = "mixed",
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    return sliced(_gradient, h, W, target, bias, smoothing, convention, reduction)
