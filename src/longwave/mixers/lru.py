"""Linear recurrent unit: a linear RNN made diagonal, its complex eigenvalues held inside the unit circle.
Recurrence (N complex numbers):
    h_t = l h_{t-1} + g (B x_t)        l = exp(-exp(nu) + i exp(theta))        y_t = Re(C h_t) + D x_t

Parallel form: the recurrence is linear in h, so a scan of any grouping (see ops.scan).

Cost: training and a decoded token O(N d); state 2 N numbers.

Paper: Orvieto et al. 2023, "Resurrecting recurrent neural networks for long sequences", section 3, eq. 5, 7 and 8, and
lemma 3.2 (eigenvalues spread evenly over a ring).

Deviations: none; nonlinearity and channel mixing are left to the feed-forward network beside it, as there.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan
from longwave.state import State


class Spiral(State):
    h: Float[Tensor, "B N 2"]


class LRU(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        d_state: int | None = None,  # complex numbers of state; None: d_model
        r_min: float = 0.0,  # the ring of eigenvalues at the start: its inner radius
        r_max: float = 1.0,  # and its outer one
        max_phase: float = 2 * math.pi,  # the largest angle at the start
    ) -> None:
        super().__init__()
        N = d_model if d_state is None else d_state
        check_positive(d_state=N, max_phase=max_phase)
        if not 0 <= r_min < r_max <= 1:
            raise UserError(f"eigenvalues lie inside the unit circle, 0 <= r_min < r_max <= 1; got {r_min} and {r_max}")
        radius = (torch.rand(N) * (r_max**2 - r_min**2) + r_min**2).sqrt().clamp(1e-4, 1 - 1e-4)
        self.nu = nn.Parameter((-radius.log()).log())
        self.theta = nn.Parameter((torch.rand(N).clamp_min(1e-4) * max_phase).log())
        self.gain = nn.Parameter(
            0.5 * torch.log1p(-radius.square())
        )  # log g: a white input gives a state of variance 1
        self.B = nn.Parameter(torch.randn(2 * N, d_model) / math.sqrt(2 * d_model))
        self.C = nn.Parameter(torch.randn(d_model, 2 * N) / math.sqrt(N))  # the imaginary half with its sign changed
        self.D = nn.Parameter(torch.randn(d_model))
        for name in ("nu", "theta", "gain"):
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        hint(self, "B", own_init=True)
        hint(self, "C", own_init=True)

    def init_state(self, batch: int) -> Spiral:
        return Spiral(self.zeros(batch, len(self.nu), 2, wide=True))

    def forward(
        self, x: Tensor, state: Spiral | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Spiral | None]:
        turn = torch.polar((-self.nu.exp()).exp(), self.theta.exp())
        u = torch.complex(*(wide(half) * self.gain.exp() for half in F.linear(x, self.B).chunk(2, -1)))
        first = None if state is None else torch.view_as_complex(state.h.contiguous())
        every, last = linear_scan(turn.expand_as(u), u, first, lengths)
        h = torch.cat([every.real, every.imag], -1).to(x.dtype)
        y = F.linear(h, self.C) + self.D * x
        return y, None if last is None else Spiral(torch.view_as_real(last))
