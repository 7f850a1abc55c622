"""A token's channels brought to one size, after a residual was added to them.

    rms_norm     y = s / sqrt(mean(s^2) + eps) * weight                       with s = x + residual
    layer_norm   y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias

Both return y and s: the sum goes on as the residual stream. Sums are in at least float32.

Zhang and Sennrich 2019, eq. 4; Ba, Kiros and Hinton 2016, eq. 3.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide


@op
def rms_norm(
    x: Float[Tensor, "*n D"],
    weight: Float[Tensor, " D"],
    residual: Float[Tensor, "*n D"] | None = None,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*n D"], Float[Tensor, "*n D"]]:
    s = x if residual is None else x + residual
    y = wide(s)
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight).to(s.dtype), s


@rms_norm.samples
def rms_norm_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for shape in ((1, 1, 1), (2, 7, 3), (5, 40), (64,)):
        x = make.normal(*shape)
        yield f"x {list(shape)}", dict(x=x, weight=make.normal(shape[-1]))
    yield "a residual", dict(x=make.normal(3, 70, 17), weight=make.normal(17), residual=make.normal(3, 70, 17))
    yield "a part of wider rows", dict(x=make.normal(2, 5, 12)[..., 3:9], weight=make.normal(6), eps=0.1)


@rms_norm.form("torch")
def fused_rms(x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    s = x if residual is None else x + residual
    return F.rms_norm(s, weight.shape, weight.to(s.dtype), eps), s  # one dtype: the fused kernel


@op
def layer_norm(
    x: Float[Tensor, "*n D"],
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"] | None = None,
    residual: Float[Tensor, "*n D"] | None = None,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*n D"], Float[Tensor, "*n D"]]:
    s = x if residual is None else x + residual
    centred = wide(s) - wide(s).mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight
    return (y if bias is None else y + bias).to(s.dtype), s


@layer_norm.samples
def layer_norm_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for shape in ((1, 1, 1), (2, 7, 3), (5, 40), (64,)):
        D = shape[-1]
        yield f"x {list(shape)}", dict(x=make.normal(*shape), weight=make.normal(D), bias=make.normal(D))
    yield "no bias", dict(x=make.normal(2, 9, 5), weight=make.normal(5))
    yield (
        "a residual",
        dict(x=make.normal(3, 70, 17), weight=make.normal(17), bias=make.normal(17), residual=make.normal(3, 70, 17)),
    )
    yield "far from zero", dict(x=make.between(99, 101, 4, 20), weight=make.normal(20))


@layer_norm.form("torch")
def fused_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    s = x if residual is None else x + residual
    return F.layer_norm(s, weight.shape, weight.to(s.dtype), None if bias is None else bias.to(s.dtype), eps), s
