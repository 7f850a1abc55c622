"""S4: a HiPPO memory a channel, its matrix diagonal minus rank one; trained as a convolution, run as a recurrence.
Recurrence (N/2 complex modes a channel, sampled by the bilinear rule with the channel's own step, A = Lambda - P P*):
    h_t = (1 - dt/2 A)^-1 ((1 + dt/2 A) h_{t-1} + dt B x_t)        y_t = 2 Re(C . h_t) + D x_t
    out = GLU(W gelu(y))

Parallel form: y = K * x by the FFT; K from its generating function, sums over poles with a rank one correction (see
ops.dplr).

Cost: training O(T d (log T + N)) and d N^3 log T for the end of the kernel; a decoded token O(d N + d^2); state d N
numbers.

Paper: Gu, Goel and Re 2022, "Efficiently modeling long sequences with structured state spaces", sections 3 and 3.4; P =
Q: Goel et al. 2022, section 4.2.

Deviations: C is the C of the state space; the authors learn C (1 - A^L) for one length L. `dt` rescales the step: train
at one rate, run at another, or at irregular times (a step at a time).
"""

import math

import torch
from torch import Tensor, nn

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.s4d import Modes
from longwave.ops.dplr import dplr
from longwave.parts.gate import GatedOutput
from longwave.parts.hippo import nplr


class S4(Mixer):
    work = "fft"
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 64,  # real numbers of state a channel: half as many oscillators
        dt_min: float = 1e-3,  # the slowest channel's step at the start
        dt_max: float = 1e-1,  # the fastest one's
        dropout: float = 0.0,  # before the output projection
    ) -> None:
        super().__init__()
        check_divides("halves", 2, "d_state", d_state)
        poles, P, B = (x.to(torch.complex64).repeat(d_model, 1) for x in nplr(d_state // 2))
        self.log_dt = nn.Parameter(torch.rand(d_model) * math.log(dt_max / dt_min) + math.log(dt_min))
        self.log_damping = nn.Parameter((-poles.real).log())
        self.frequency = nn.Parameter(poles.imag.clone())
        self.P = nn.Parameter(torch.view_as_real(P))
        self.B = nn.Parameter(torch.view_as_real(B))
        self.C = nn.Parameter(torch.randn(d_model, d_state // 2, 2) / math.sqrt(2))
        self.D = nn.Parameter(torch.randn(d_model))
        self.out = GatedOutput(d_model, dropout)
        for name in ("log_dt", "log_damping", "frequency", "P", "B"):
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        hint(self, "C", float32=True, own_init=True)

    def init_state(self, batch: int) -> Modes:
        return Modes(self.zeros(batch, *self.C.shape, wide=True))

    def forward(
        self, x: Tensor, state: Modes | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Modes | None]:
        poles = torch.complex(-self.log_damping.exp(), self.frequency)
        step = torch.as_tensor(dt, dtype=self.log_dt.dtype, device=x.device)[..., None] * self.log_dt.exp()
        P, B, C = (torch.view_as_complex(part) for part in (self.P, self.B, self.C))
        y, h = dplr(x, step, poles, P, B, C, None if state is None else state.h, lengths)
        return self.out(y + self.D * x), None if h is None else Modes(h)
