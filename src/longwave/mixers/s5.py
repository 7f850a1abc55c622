"""S5: one diagonal state space for all channels together, instead of one a channel; trained by a parallel scan.
Recurrence (N/2 complex modes, each with its own step dt, sampled by zero-order hold):
    h_t = exp(dt A) h_{t-1} + (exp(dt A) - 1)/A B x_t        y_t = 2 Re(C h_t) + D x_t
    out = gelu(y) s(W gelu(y))

Parallel form: the recurrence is linear in h, elementwise, so a scan of any grouping (see ops.scan), also where the
steps change over time.

Cost: training O(T d N); a decoded token O(d N + d^2); state N numbers.

Paper: Smith, Warrington and Linderman 2023, "Simplified state space layers for sequence modeling", section 3, appendix
B; the poles are those of HiPPO-LegS without its rank one part, in equal blocks.

Deviations: B and C start as complex Gaussians, which is how the real Gaussians of the paper look in the poles' basis.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear import linear
from longwave.ops.lti import discretize_diagonal
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan
from longwave.parts.hippo import diagonal_poles
from longwave.parts.linear import Linear
from longwave.state import State


class Shared(State):
    h: Float[Tensor, "B N 2"]


class S5(Mixer):
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 64,  # real numbers of state for all channels together: half as many oscillators
        n_blocks: int = 1,  # HiPPO matrices that the poles are taken from, each of d_state / n_blocks
        dt_min: float = 1e-3,  # the slowest mode's step at the start
        dt_max: float = 1e-1,  # the fastest one's
    ) -> None:
        super().__init__()
        check_divides("halves of n_blocks", 2 * n_blocks, "d_state", d_state)
        n = d_state // 2
        poles = diagonal_poles("legs", n // n_blocks).repeat(n_blocks)
        self.log_dt = nn.Parameter(torch.rand(n) * math.log(dt_max / dt_min) + math.log(dt_min))
        self.log_damping = nn.Parameter((-poles.real).log().to(self.log_dt))
        self.frequency = nn.Parameter(poles.imag.to(self.log_dt))
        self.B = nn.Parameter(torch.randn(n, 2, d_model) / math.sqrt(2 * d_model))
        self.C = nn.Parameter(torch.randn(d_model, n, 2) / math.sqrt(4 * n))
        self.D = nn.Parameter(torch.randn(d_model))
        self.gate = Linear(d_model, d_model)
        for name in ("log_dt", "log_damping", "frequency"):
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        hint(self, "B", float32=True, own_init=True)
        hint(self, "C", float32=True, own_init=True)

    def init_state(self, batch: int) -> Shared:
        return Shared(self.zeros(batch, len(self.log_dt), 2, wide=True))

    def forward(
        self, x: Tensor, state: Shared | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Shared | None]:
        A = torch.complex(-self.log_damping.exp(), self.frequency)
        step = torch.as_tensor(dt, dtype=A.real.dtype, device=x.device)
        step = step.view(*step.shape, *[1] * (3 - step.ndim)) * self.log_dt.exp()  # [1 or B, 1 or T, N]
        z, gain = discretize_diagonal(A, step)
        driven = torch.view_as_complex(linear(wide(x), self.B.flatten(0, 1)).unflatten(-1, (-1, 2)))
        h = None if state is None else torch.view_as_complex(state.h.contiguous())
        every, last = linear_scan(z.exp().expand_as(driven), gain * driven, h, lengths)
        readout = self.C * self.C.new_tensor([2.0, -2.0])
        y = linear(torch.view_as_real(every).flatten(2), readout.flatten(1)).to(x.dtype) + self.D * x
        y = F.gelu(y)
        return y * torch.sigmoid(self.gate(y)), None if last is None else Shared(torch.view_as_real(last))
