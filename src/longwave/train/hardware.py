"""Where training runs, and in what precision."""

import torch

from longwave.errors import UserError


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "cpu")
    if not there[name]:
        raise UserError(f"torch finds no {name} device on this machine; --device auto takes what there is")
    return torch.device(name)


def choose_half(precision: str, device: torch.device) -> bool:
    """Whether products run in bfloat16; `auto`: where the hardware multiplies in it."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported()
