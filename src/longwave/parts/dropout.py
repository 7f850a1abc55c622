"""Dropout: each number is zero with probability p, else 1 / (1 - p) times itself. Srivastava et al. 2014.

On a CPU torch draws 64 random bits for every number; here four numbers share them, which takes a quarter of the time.
Then p is rounded to a multiple of 2^-16, and so is the factor.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

_STEPS = 1 << 16


def dropout(x: Float[Tensor, "*n"], p: float, training: bool) -> Float[Tensor, "*n"]:
    if not training or p == 0:
        return x
    dropped = round(p * _STEPS)
    if x.device.type != "cpu" or not 0 < dropped < _STEPS:
        return F.dropout(x, p, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - _STEPS // 2
    return x * (kept.to(x.dtype) * (_STEPS / (_STEPS - dropped)))


class Dropout(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return dropout(x, self.p, self.training)
