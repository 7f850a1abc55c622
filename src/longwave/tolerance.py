"""How far two right answers may lie apart, by dtype: the one table, for laws and tests alike.

`apart` measures |a - b| at its largest, relative to 1 + the largest |b|: a wrong answer in one place is not averaged
away.
"""

import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: 1e-9,  # some 1e6 roundings: a long sum by FFT against one in order
    torch.float32: 3e-4,  # the same sums over the lengths of tests; a parameter's gradient adds up T of them
    torch.bfloat16: 6e-2,  # 8 bits of mantissa through a few layers
    torch.float16: 2e-2,  # 11 bits
}


def apart(a: Tensor, b: Tensor) -> float:
    """The distance of two tensors; infinite where shapes differ or one is not a number."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    a, b = a.detach(), b.detach()
    exact = torch.complex128 if a.is_complex() else torch.float64
    gap = (a.to(exact) - b.to(exact)).abs().max() / (1 + b.to(exact).abs().max())
    return float(torch.where(gap.isnan(), torch.inf, gap))
