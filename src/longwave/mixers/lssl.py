"""LSSL: the state space as it stands, a dense HiPPO matrix that may learn within the form such matrices have.
Recurrence (N numbers a channel; A shared, sampled by the bilinear rule with the channel's own step):
    A = P (E + T^-1) Q        P, E, Q diagonal, T tridiagonal
    h_t = (1 - dt/2 A)^-1 ((1 + dt/2 A) h_{t-1} + dt B x_t)        y_t = C . h_t + D x_t
    out = W gelu(y)

Parallel form: y = K * x by the FFT, with K_l = C A'^l B' by doubling (see ops.dense_lti).

Cost: training O(d N^3 log T + T d (log T + N^2)); a decoded token O(d N^3) for the matrix and d N^2 to use it; state
d N numbers. S4 is the same map, far cheaper.

Paper: Gu et al. 2021, "Combining recurrent, convolutional, and continuous-time models with linear state-space layers",
sections 3 and 4.2. HiPPO-LegS has the form: T the difference of neighbours, so T^-1 sums them.

Deviations: one output a channel (M = 1), B a channel's own. `dt` rescales the step, also a token at a time.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.dense_lti import dense_lti
from longwave.ops.lti import discretize
from longwave.parts.hippo import transition
from longwave.parts.linear import Linear
from longwave.state import State


class Coefficients(State):
    h: Float[Tensor, "B D N"]


class LSSL(Mixer):
    work = "fft"
    continuous = True
    P: Tensor
    Q: Tensor
    E: Tensor
    T: Tensor
    above: Tensor
    below: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        d_state: int = 16,  # numbers of state a channel
        learn_A: bool = True,  # within its form; False: HiPPO-LegS for ever
        dt_min: float = 1e-3,  # the slowest channel's step at the start
        dt_max: float = 1e-1,  # the fastest one's
    ) -> None:
        super().__init__()
        n = torch.arange(d_state, dtype=torch.float64)
        root = (2 * n + 1).sqrt()
        parts = dict(P=-root, Q=root, E=-n / (2 * n + 1), T=torch.ones_like(n), above=0 * n[1:], below=-(0 * n[1:] + 1))
        for name, value in parts.items():
            setattr(self, name, nn.Parameter(value.float(), requires_grad=learn_A))
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        self.log_dt = nn.Parameter(torch.rand(d_model) * math.log(dt_max / dt_min) + math.log(dt_min))
        self.B = nn.Parameter(transition("legs", d_state)[1].float().repeat(d_model, 1))
        self.C = nn.Parameter(torch.randn(d_model, d_state) / math.sqrt(d_state))
        self.D = nn.Parameter(torch.randn(d_model))
        self.out = Linear(d_model, d_model)
        for name in ("log_dt", "B"):
            hint(self, name, decay=False, lr=1e-3, float32=True, own_init=True)
        hint(self, "C", float32=True, own_init=True)

    def A(self) -> Float[Tensor, "N N"]:
        sums = torch.linalg.inv(torch.diag(self.T) + torch.diag(self.above, 1) + torch.diag(self.below, -1))
        return self.P[:, None] * (torch.diag(self.E) + sums) * self.Q

    def init_state(self, batch: int) -> Coefficients:
        return Coefficients(self.zeros(batch, *self.C.shape, wide=True))

    def forward(
        self, x: Tensor, state: Coefficients | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Coefficients | None]:
        step = torch.as_tensor(dt, dtype=self.log_dt.dtype, device=x.device)[..., None] * self.log_dt.exp()
        A, B = discretize(self.A(), self.B[..., None], step, "bilinear")
        y, h = dense_lti(x, A, B[..., 0], self.C, None if state is None else state.h, lengths)
        return self.out(F.gelu(y + self.D * x)), None if h is None else Coefficients(h.contiguous())
