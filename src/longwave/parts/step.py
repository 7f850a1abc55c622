"""Where learned step sizes start: spread evenly over their logarithm."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def softplus_steps(n: int, least: float, largest: float) -> Float[Tensor, " n"]:
    """Biases whose softplus is a step between `least` and `largest`. Gu and Dao 2023, section 3.6."""
    steps = torch.exp(torch.rand(n) * math.log(largest / least) + math.log(least)).clamp_min(1e-4)
    return steps + torch.log(-torch.expm1(-steps))
