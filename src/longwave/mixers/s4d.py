"""S4D: damped oscillators driven by the input, a bank a channel; trained as a convolution, run as a recurrence.
Recurrence (N/2 complex modes a channel, sampled by zero-order hold with the channel's own step):
    h_t = exp(dt A) h_{t-1} + (exp(dt A) - 1)/A x_t        y_t = 2 Re(C . h_t) + D x_t
    out = GLU(W gelu(y))

Parallel form:
    y = K * x with K_l = 2 Re sum_n C_n (exp(dt A_n) - 1)/A_n exp(l dt A_n), by the FFT

Cost: training O(T d (log T + N)); a decoded token O(d N + d^2); state d N numbers.

Paper: Gu et al. 2022, "On the parameterization and initialization of diagonal state space models", sections 3 and 4;
the S4 layer around it, Gu, Goel and Re 2022, section 3.4.

Deviations: B is fixed at 1 (it is absorbed by C, as there). `dt` rescales the step: train at one rate, run at another.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.lti import discretize_diagonal, lti
from longwave.parts.gate import GatedOutput
from longwave.parts.hippo import diagonal_poles
from longwave.state import State


class Modes(State):
    h: Float[Tensor, "B D N 2"]


class S4D(Mixer):
    work = "fft"
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 64,  # real numbers of state a channel: half as many oscillators
        init: Literal["lin", "inv", "legs", "real"] = "lin",  # the poles it starts from
        method: Literal["zoh", "bilinear"] = "zoh",  # how time is sampled
        dt_min: float = 1e-3,  # the slowest channel's step at the start
        dt_max: float = 1e-1,  # the fastest one's
        bandlimit: float | None = None,  # oscillators faster than this share of half the sampling rate are silent
        dropout: float = 0.0,  # before the output projection
    ) -> None:
        super().__init__()
        check_divides("halves", 2, "d_state", d_state)
        self.method, self.bandlimit = method, bandlimit
        poles = diagonal_poles(init, d_state // 2).expand(d_model, -1)
        steps = torch.rand(d_model, 1) * math.log(dt_max / dt_min) + math.log(dt_min)
        self.log_dt = nn.Parameter(steps)
        self.log_damping = nn.Parameter((-poles.real).log().to(steps))
        self.frequency = nn.Parameter(poles.imag.to(steps).clone())
        self.C = nn.Parameter(torch.randn(d_model, d_state // 2, 2) / math.sqrt(2))
        self.D = nn.Parameter(torch.randn(d_model))
        self.out = GatedOutput(d_model, dropout)
        for name in ("log_dt", "log_damping", "frequency"):
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        hint(self, "C", float32=True, own_init=True)

    def init_state(self, batch: int) -> Modes:
        return Modes(self.zeros(batch, *self.C.shape, wide=True))

    def forward(
        self, x: Tensor, state: Modes | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Modes | None]:
        A = torch.complex(-self.log_damping.exp(), self.frequency)
        step = torch.as_tensor(dt, dtype=A.real.dtype, device=x.device)
        step = step.view(*step.shape, 1, 1) * self.log_dt.exp()
        z, gain = discretize_diagonal(A, step, self.method)
        if self.bandlimit is not None:  # at another rate, what would be heard as another pitch
            gain = gain * (z.imag.abs() <= self.bandlimit * math.pi)
        C = 2 * torch.view_as_complex(self.C)
        y, h = lti(x, z, gain.expand_as(z), C, None if state is None else state.h, lengths, self.D)
        return self.out(y), None if h is None else Modes(h)
