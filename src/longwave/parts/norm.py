"""Normalisation over the channels of a token, or of a channel over tokens; a residual given beside it is added before.

layer   (x - mean) / sqrt(var + eps) * gain + shift       Ba, Kiros and Hinton 2016
gain    the same without the shift
rms     x / sqrt(mean(x^2) + eps) * gain                  Zhang and Sennrich 2019
batch   a channel less its mean over the batch's tokens, by their deviation     Ioffe and Szegedy 2015
none    x
unit    x / |x|
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import choose
from longwave.hints import hint
from longwave.ops.norm import layer_norm, rms_norm
from longwave.ops.precision import wide
from longwave.registry import check_options
from longwave.spec import Spec

Row = Float[Tensor, "... D"]
Lengths = Int[Tensor, " B"] | None


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, *, shift: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if shift else None

    def forward(self, x: Row, residual: Row | None = None, lengths: Lengths = None) -> Row:
        return layer_norm(x, self.weight, self.bias, residual, self.eps)[0]


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Row, residual: Row | None = None, lengths: Lengths = None) -> Row:
        return rms_norm(x, self.weight, residual, self.eps)[0]


class BatchNorm(nn.Module):
    """In training by the mean and variance of the batch's tokens, pads left out; else by their running averages.

    A batch of a single token has no variance: it is seen by the running averages, too.
    """

    couples = ("rows", "times")
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, d_model: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))

    def forward(self, x: Row, residual: Row | None = None, lengths: Lengths = None) -> Row:
        s = x if residual is None else x + residual
        rows = wide(s if lengths is None else s[torch.arange(s.shape[1], device=s.device) < lengths[:, None]])
        rows = rows.flatten(0, -2)
        mean, var = wide(self.running_mean), wide(self.running_var)
        if self.training and len(rows) > 1:
            var, mean = torch.var_mean(rows, 0, correction=0)
            self._remember(mean.detach(), var.detach() * len(rows) / (len(rows) - 1))
        return ((wide(s) - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias).to(s.dtype)

    def _remember(self, mean: Tensor, var: Tensor) -> None:
        for held, new in ((self.running_mean, mean), (self.running_var, var)):
            held.lerp_(new.to(held.dtype), self.momentum)


class NoNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Row, residual: Row | None = None, lengths: Lengths = None) -> Row:
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


NORMS: dict[str, Callable[..., nn.Module]] = dict(rms=RMSNorm, layer=LayerNorm, gain=gain_only, batch=BatchNorm,
                                             none=NoNorm)  # fmt: skip


def make_norm(kind: str | Spec, d_model: int) -> nn.Module:
    """The norm of this name; Spec("rms", eps=1e-6) has options, too."""
    spec = Spec(kind) if isinstance(kind, str) else kind
    make = choose("norm", spec.name, NORMS)
    check_options(f"norm {spec.name!r}", make, spec.options)
    return make(d_model, **spec.options)
