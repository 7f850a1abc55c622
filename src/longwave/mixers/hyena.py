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
from longwave.ops.fftconv import Past, long_conv, toeplitz
from longwave.ops.short_conv import short_conv
from longwave.parts.filters import ImplicitFilter
from longwave.parts.linear import Linear
from longwave.record import record
from longwave.state import State


class Pasts(State):
    window: Float[Tensor, "B M D"]
    pasts: tuple[Past | None, ...]

    def snapshot(self) -> "Pasts":
        return Pasts(self.window.clone(), tuple(past and past.snapshot() for past in self.pasts))


class Hyena(Mixer):
    work = "fft"
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        order: int = 2,  # gates; order - 1 long convolutions
        d_conv: int = 3,  # taps of the short convolution
        longest: int = 1024,  # the length that positions and decay are measured in
        gated: bool = True,  # gates made from the input; False: none, which leaves a linear operator
    ) -> None:
        super().__init__()
        check_positive(order=order - 1, d_conv=d_conv, longest=longest)
        self.streams = order + 1 if gated else 1
        self.project = Linear(d_model, self.streams * d_model)
        bound = 1 / math.sqrt(d_conv)
        self.conv = nn.Parameter(torch.empty(self.streams * d_model, d_conv).uniform_(-bound, bound))
        self.conv_bias = nn.Parameter(torch.empty(self.streams * d_model).uniform_(-bound, bound))
        self.filters = nn.ModuleList(ImplicitFilter(d_model, longest=longest) for _ in range(order - 1))
        self.out = Linear(d_model, d_model)
        hint(self, "conv", own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> Pasts:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        channels, taps = self.conv.shape
        n = self.zeros(batch, dtype=torch.long)
        empty = (self.zeros(batch, capacity or 0, self.out.in_features) for _ in self.filters)
        pasts = tuple(Past(u, n, fixed=capacity is not None) for u in empty)
        return Pasts(self.zeros(batch, taps - 1, channels), pasts)

    def forward(
        self, x: Tensor, state: Pasts | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Pasts | None]:
        u, window = short_conv(
            self.project(x), self.conv, self.conv_bias, None if state is None else state.window, lengths
        )
        v, *gates = u.chunk(self.streams, -1)
        record("matrix", lambda: self._matrix(gates, x))
        pasts = []
        for i, taps in enumerate(self.filters):
            z = gates[i] * v if gates else v
            v, past = long_conv(z, taps, None if state is None else state.pasts[i], lengths)
            pasts.append(past)
        y = gates[-1] * v if gates else v
        return self.out(y), None if state is None else Pasts(window, tuple(pasts))

    def _matrix(self, gates: list[Tensor], x: Tensor) -> Float[Tensor, "B D T T"]:
        """What takes v to y in this piece, a channel: diagonals of gates between Toeplitz matrices (eq. 5)."""
        whole = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(len(x), x.shape[2], -1, -1)
        for i, taps in enumerate(self.filters):
            gate = gates[i].mT[..., None] if gates else 1.0
            whole = toeplitz(taps(x.shape[1])) @ (gate * whole)
        return gates[-1].mT[..., None] * whole if gates else whole
