"""Where a number that is none came from: the forward and backward pass again, watching every module."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn


def first_nan(model: nn.Module, run: Callable[[], Tensor]) -> str:
    """Which module first gave something that is not finite when `run` computes a loss and its gradients."""
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            return f"the parameter {name} is not finite itself"
    forward: list[str] = []
    backward: list[str] = []
    with _watching(model, forward, backward):
        loss = run()
        if not forward and bool(loss.isfinite()):
            loss.backward()
    if forward:
        return f"the first module whose output is not finite is {forward[0]}"
    if not bool(loss.isfinite()):
        return "every module's output is finite, the loss made of them is not"
    if backward:
        return f"the loss is finite; the first gradient that is not comes out of {backward[0]}, going backwards"
    named = [n for n, p in model.named_parameters() if p.grad is not None and not bool(p.grad.isfinite().all())]
    return f"the loss is finite; the gradient of {named[0]} is not" if named else "it did not happen again"


@contextmanager
def _watching(model: nn.Module, forward: list[str], backward: list[str]) -> Iterator[None]:
    handles = []
    for name, module in model.named_modules():
        kind = f"{name or 'the model'} ({type(module).__name__})"

        def after(_: nn.Module, inputs: Any, output: Any, kind: str = kind) -> None:
            if _finite(inputs) and not _finite(output):
                forward.append(kind)

        def before(_: nn.Module, into: Any, out_of: Any, kind: str = kind) -> None:
            if _finite(out_of) and not _finite(into):
                backward.append(kind)

        handles.append(module.register_forward_hook(after))
        if not any(module.children()):
            handles.append(module.register_full_backward_hook(before))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _finite(values: Any) -> bool:
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, Tensor) and t.is_floating_point()]
    return all(bool(torch.isfinite(t).all()) for t in tensors)
