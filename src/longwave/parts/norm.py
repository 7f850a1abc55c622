"""Normalisation over the channels of a token; a residual given beside it is added before.

layer   (x - mean) / sqrt(var + eps) * gain + shift       Ba, Kiros and Hinton 2016
gain    the same without the shift
rms     x / sqrt(mean(x^2) + eps) * gain                  Zhang and Sennrich 2019
none    x
unit    x / |x|
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import choose
from longwave.hints import hint
from longwave.ops.norm import layer_norm, rms_norm
from longwave.ops.precision import wide
from longwave.registry import check_options
from longwave.spec import Spec

Row = Float[Tensor, "... D"]


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, *, shift: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if shift else None

    def forward(self, x: Row, residual: Row | None = None) -> Row:
        return layer_norm(x, self.weight, self.bias, residual, self.eps)[0]


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Row, residual: Row | None = None) -> Row:
        return rms_norm(x, self.weight, residual, self.eps)[0]


class NoNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Row, residual: Row | None = None) -> Row:
        return x if residual is None else x + residual


class HeadNorm(nn.Module):
    """LayerNorm of each head by itself, with a gain and a shift a channel: what GroupNorm is for heads."""

    def __init__(self, n_heads: int, d_head: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_heads, d_head))
        self.bias = nn.Parameter(torch.zeros(n_heads, d_head))
        hint(self, "weight", decay=False)
        hint(self, "bias", decay=False)

    def forward(self, x: Float[Tensor, "... H V"]) -> Float[Tensor, "... H V"]:
        return torch.addcmul(self.bias, F.layer_norm(x, x.shape[-1:], eps=self.eps), self.weight)


def unit(x: Float[Tensor, "... K"], eps: float) -> Float[Tensor, "... K"]:
    """x / |x|, with eps added to |x|^2; in at least float32, where small squares do not vanish."""
    x = wide(x)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


def gain_only(d_model: int, *, eps: float = 1e-5) -> LayerNorm:
    return LayerNorm(d_model, shift=False, eps=eps)


NORMS: dict[str, Callable[..., nn.Module]] = dict(rms=RMSNorm, layer=LayerNorm, gain=gain_only, none=NoNorm)


def make_norm(kind: str | Spec, d_model: int) -> nn.Module:
    """The norm of this name; Spec("rms", eps=1e-6) has options, too."""
    spec = Spec(kind) if isinstance(kind, str) else kind
    make = choose("norm", spec.name, NORMS)
    check_options(f"norm {spec.name!r}", make, spec.options)
    return make(d_model, **spec.options)
