"""Normalisation over the channels of a token.

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
from longwave.ops.precision import wide


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, *, shift: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if shift else None

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)  # one dtype: the fused kernel


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


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "rms": RMSNorm,
    "layer": LayerNorm,
    "gain": lambda d_model: LayerNorm(d_model, shift=False),
    "none": lambda d_model: nn.Identity(),
}


def make_norm(kind: str, d_model: int) -> nn.Module:
    return choose("norm", kind, NORMS)(d_model)
