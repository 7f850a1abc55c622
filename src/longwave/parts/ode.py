"""One step of a differential equation h' = f(h), by the classical explicit schemes."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["rk4", "midpoint", "euler"]


def ode_step(f: Callable[[Tensor], Tensor], h: Tensor, dt: Tensor, solver: Solver = "rk4") -> Tensor:
    """h after the time dt, which broadcasts against it; the error is of order 5, 3 or 2 in dt."""
    slope = f(h)
    if solver == "euler":
        return torch.addcmul(h, dt, slope)
    middle = f(torch.addcmul(h, dt, slope, value=0.5))
    if solver == "midpoint":
        return torch.addcmul(h, dt, middle)
    again = f(torch.addcmul(h, dt, middle, value=0.5))
    end = f(torch.addcmul(h, dt, again))
    return torch.addcmul(h, dt, slope + 2 * (middle + again) + end, value=1 / 6)
