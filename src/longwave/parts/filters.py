"""Filters that a small network writes: as many taps as are asked for, or one at any time; the number of parameters
depends on neither.
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.parts.linear import Linear


class ImplicitFilter(nn.Module):
    """h(t) = network(position features of t) exp(-t decay), for any number of taps; a longer filter begins with a
    shorter one. Poli et al. 2023, eq. 7.
    """

    rates: Tensor
    decay: Tensor

    def __init__(self, d_model: int, *, longest: int, bands: int = 8, width: int = 64, sharpness: float = 10.0) -> None:
        super().__init__()
        self.longest, self.sharpness = longest, sharpness
        self.network = nn.ModuleList([Linear(2 * bands + 1, width), Linear(width, width), Linear(width, d_model)])
        self.register_buffer("rates", torch.linspace(1e-4, bands - 1, bands) * 2 * math.pi / longest)
        self.register_buffer("decay", fading(d_model))
        self.skip = nn.Parameter(torch.randn(d_model))
        _keep_init(self.network)

    def forward(self, length: int) -> Float[Tensor, "L D"]:
        t = torch.arange(length, device=self.skip.device)[:, None].to(self.skip)
        h = torch.cat([t / self.longest, (t * self.rates).cos(), -(t * self.rates).sin()], -1)
        h = sine_network(self.network, h, self.sharpness) * torch.exp(-t / self.longest * self.decay)
        return torch.cat([h[:1] + self.skip, h[1:]])


class SineFilter(nn.Module):
    """h(t) = network(t / longest) at any real times t: a SIREN, whose layers start so that each passes on what it gets.
    Romero et al. 2022, section 4.2; Sitzmann et al. 2020, section 3.2.
    """

    def __init__(self, d_model: int, *, longest: int, width: int = 32, sharpness: float = 30.0) -> None:
        super().__init__()
        self.longest, self.sharpness = longest, sharpness
        layers = [Linear(1, width), Linear(width, width), Linear(width, d_model)]
        bound = math.sqrt(6 / width)
        for layer, spread in zip(layers, (1.0, bound / sharpness, bound / math.sqrt(longest)), strict=True):
            nn.init.uniform_(layer.weight, -spread, spread)
        nn.init.zeros_(layers[-1].bias)
        self.network = nn.ModuleList(layers)
        _keep_init(self.network)

    def forward(self, t: Float[Tensor, "*n"]) -> Float[Tensor, "*n D"]:
        t = (t / self.longest).to(next(self.parameters()))
        return sine_network(self.network, t[..., None], self.sharpness)


def sine_network(layers: nn.ModuleList, x: Tensor, sharpness: float) -> Tensor:
    for layer in layers[:-1]:
        x = torch.sin(sharpness * layer(x))
    return layers[-1](x)


def fading(d_model: int) -> Float[Tensor, " D"]:
    """A rate a channel: exp(-rate t / longest) falls to 1 % at 0.3 ... 1.5 of `longest`."""
    return -torch.linspace(math.log(1e-2) / 0.3, math.log(1e-2) / 1.5, d_model)


def _keep_init(layers: Iterable[nn.Module]) -> None:
    for layer in layers:
        hint(layer, "weight", own_init=True)
        hint(layer, "bias", decay=False, own_init=True)
