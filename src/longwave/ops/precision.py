"""Sums over time are kept in at least float32, whatever comes in."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
