"""Hyena: long convolutions with filters that a small network writes, between gates made from the input.

Recurrence (order 2; the state is the past of z, or better: sums already made for outputs to come):
    v, x1, x2 = short convolution of W u        z_t = x1_t v_t        y_t = x2_t (sum_s h_{t-s} z_s + b z_t)
    out = W' y; each further order gates and convolves once more

Parallel form: the same with the sums by the FFT.

Cost: training O(T d log T); N decoded tokens O(N d log^2 N) together; state 3 t d numbers.

Paper: Poli et al. 2023, section 3, Definition 3.1 and eq. 7 (the filter: a network of positions, times a decaying
window).

Deviations: any length; past `longest` the positions simply go on. Decoding is exact, not a distilled recurrence.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.fftconv import Past, long_conv
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear
from longwave.state import State


class Pasts(State):
    window: Float[Tensor, "B M D"]
    pasts: tuple[Past | None, ...]

    def snapshot(self) -> "Pasts":
        return Pasts(self.window.clone(), tuple(past and past.snapshot() for past in self.pasts))


class ImplicitFilter(nn.Module):
    rates: Tensor
    decay: Tensor

    """h(t) = network(position features of t) exp(-t decay), for any number of taps; a longer filter begins with a
    shorter one.
    """

    def __init__(self, d_model: int, *, longest: int, bands: int = 8, width: int = 64, sharpness: float = 10.0) -> None:
        super().__init__()
        self.longest, self.sharpness = longest, sharpness
        self.network = nn.ModuleList([Linear(2 * bands + 1, width), Linear(width, width), Linear(width, d_model)])
        self.register_buffer("rates", torch.linspace(1e-4, bands - 1, bands) * 2 * math.pi / longest)
        fast, slow = math.log(1e-2) / 0.3, math.log(1e-2) / 1.5  # the window falls to 1 % at 0.3 ... 1.5 of `longest`
        self.register_buffer("decay", -torch.linspace(fast, slow, d_model))
        self.skip = nn.Parameter(torch.randn(d_model))
        for layer in self.network:
            hint(layer, "weight", own_init=True)
            hint(layer, "bias", decay=False, own_init=True)

    def forward(self, length: int) -> Float[Tensor, "L D"]:
        t = torch.arange(length, device=self.skip.device)[:, None].to(self.skip)
        h = torch.cat([t / self.longest, (t * self.rates).cos(), -(t * self.rates).sin()], -1)
        for layer in self.network[:-1]:
            h = torch.sin(self.sharpness * layer(h))
        h = self.network[-1](h) * torch.exp(-t / self.longest * self.decay)
        return torch.cat([h[:1] + self.skip, h[1:]])


class Hyena(Mixer):
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        order: int = 2,  # gates; order - 1 long convolutions
        d_conv: int = 3,  # taps of the short convolution
        longest: int = 1024,  # the length that positions and decay are measured in
    ) -> None:
        super().__init__()
        check_positive(order=order - 1, d_conv=d_conv, longest=longest)
        self.order = order
        self.project = Linear(d_model, (order + 1) * d_model)
        bound = 1 / math.sqrt(d_conv)
        self.conv = nn.Parameter(torch.empty((order + 1) * d_model, d_conv).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty((order + 1) * d_model).uniform_(-bound, bound))
        self.filters = nn.ModuleList(ImplicitFilter(d_model, longest=longest) for _ in range(order - 1))
        self.out = Linear(d_model, d_model)
        hint(self, "conv", own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Pasts:
        channels, taps = self.conv.shape
        n = self.zeros(batch, dtype=torch.long)
        pasts = tuple(Past(self.zeros(batch, 0, self.out.in_features), n) for _ in self.filters)
        return Pasts(self.zeros(batch, taps - 1, channels), pasts)

    def forward(
        self, x: Tensor, state: Pasts | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Pasts | None]:
        u, window = short_conv(
            self.project(x), self.conv, self.conv_bias, None if state is None else state.window, lengths
        )
        v, *gates = u.chunk(self.order + 1, -1)
        pasts = []
        for i, (taps, gate) in enumerate(zip(self.filters, gates[:-1], strict=True)):
            v, past = long_conv(gate * v, taps, None if state is None else state.pasts[i], lengths)
            pasts.append(past)
        return self.out(gates[-1] * v), None if state is None else Pasts(window, tuple(pasts))
