"""One step of a differential equation h' = f(h), by the classical explicit schemes."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

Solver = Literal["rk4", "midpoint", "euler"]


def ode_step(f: Callable[[Tensor], Tensor], h: Tensor, dt: float | Tensor, solver: Solver = "rk4") -> Tensor:
    """h after the time dt, which is a number or broadcasts against h; the error is of order 5, 3 or 2 in dt."""
    slope = f(h)
    if solver == "euler":
        return h + dt * slope
    middle = f(h + 0.5 * dt * slope)
    if solver == "midpoint":
        return h + dt * middle
    again = f(h + 0.5 * dt * middle)
    end = f(h + dt * again)
    return h + dt / 6 * (slope + 2 * (middle + again) + end)
