"""The linear map of a layer: y = x W^T + bias, on the last axis.

It is an op because the product that torch takes is not the fastest everywhere: on AMD its float32 product (MKL) runs at
half the speed of the other one it carries (oneDNN).
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op


@op
def linear(
    x: Float[Tensor, "*n I"], W: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*n O"]:
    y = torch.einsum("...i,oi->...o", x, W)
    return y if bias is None else y + bias


@linear.samples
def linear_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for shape in ((1, 1, 3), (2, 7, 5), (9, 4), (3,)):
        yield f"x {list(shape)}", dict(x=make.normal(*shape), W=make.normal(6, shape[-1]), bias=make.normal(6))
    yield "no bias", dict(x=make.normal(2, 3, 4), W=make.normal(1, 4))
    yield "a transposed matrix", dict(x=make.normal(2, 3, 4), W=make.normal(4, 5).T)
    yield "every other row", dict(x=make.normal(4, 6, 8)[::2, ::3, 1:5], W=make.normal(3, 4))


linear.form("torch")(lambda x, W, bias=None: F.linear(x, W, bias))
