"""Sums over time are kept in at least float32, whatever comes in."""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor

F = TypeVar("F", bound=Callable)


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def unrounded(function: F) -> F:
    """Inside, autocast rounds no product to half precision: powers of a number near 1 would not survive it."""

    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            args, kwargs = pytree.tree_map_only(Tensor, wide, (args, kwargs))
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]
