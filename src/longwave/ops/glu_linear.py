"""A gated linear layer behind a nonlinearity: y = a * sigmoid(b), where [a, b] = gelu(x) W^T + bias.

What stands behind the convolution of the S4 family (Gu, Goel and Re 2022, section 3.4, published code). It is one op
because between its product and the rest there are four passes over memory, which take longer than the product.
"""

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.linear import linear


@op
def glu_linear(x: Float[Tensor, "*n I"], W: Float[Tensor, "O2 I"], bias: Float[Tensor, " O2"]) -> Float[Tensor, "*n O"]:
    a, b = (F.gelu(x) @ W.mT + bias).chunk(2, -1)
    return (a * b.sigmoid()).to(x.dtype)


@glu_linear.samples
def glu_linear_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for shape in ((1, 1, 3), (2, 7, 40), (9, 16), (3,)):
        yield f"x {list(shape)}", dict(x=make.normal(*shape), W=make.normal(8, shape[-1]), bias=make.normal(8))
    yield "large and small", dict(x=make.normal(5, 4, scale=30), W=make.normal(34, 4), bias=make.normal(34))


@glu_linear.form("torch")
def plain(x: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    return F.glu(linear(F.gelu(x), W, bias), -1).to(x.dtype)
