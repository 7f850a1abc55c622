"""Convolution layers over time, causal or centred, and the state of a stack of them: a window for each."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.ops.conv1d import conv1d
from longwave.state import State


class Windows(State):
    windows: tuple[Float[Tensor, "B _ D"], ...]  # of each layer, its last inputs


class Convolution(nn.Module):
    """`gain`: a weight of length g and direction v, g v / |v| a channel (Salimans and Kingma 2016, eq. 2)."""

    def __init__(
        self, d_in: int, d_out: int, taps: int, *, dilation: int = 1, causal: bool = True, gain: bool = False
    ) -> None:
        super().__init__()
        check_positive(taps=taps, dilation=dilation)
        self.dilation, self.causal = dilation, causal
        bound = 1 / math.sqrt(d_in * taps)
        self.weight = nn.Parameter(torch.empty(d_out, d_in, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound))
        self.gain = nn.Parameter(self.weight.detach().norm(dim=(1, 2), keepdim=True)) if gain else None
        hint(self, "weight", own_init=True)
        if gain:
            hint(self, "gain", decay=False, own_init=True)

    @property
    def held(self) -> int:
        """Inputs that the window keeps; one more is the receptive field."""
        return self.dilation * (self.weight.shape[2] - 1)

    def window(self, batch: int) -> Float[Tensor, "B M I"]:
        return self.weight.new_zeros(batch, self.held, self.weight.shape[1])

    def forward(
        self, x: Float[Tensor, "B T I"], window: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Float[Tensor, "B T O"], Tensor | None]:
        weight = self.weight
        if self.gain is not None:
            weight = self.gain * weight / weight.norm(dim=(1, 2), keepdim=True)
        return conv1d(x, weight, self.bias, window, lengths, self.dilation, self.causal)


def start(layers: nn.ModuleList, batch: int) -> Windows:
    return Windows(tuple(layer.window(batch) for layer in layers))  # type: ignore[operator]
