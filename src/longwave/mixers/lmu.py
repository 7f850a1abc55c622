"""LMU: Legendre polynomials of a sliding window as memory, read by a layer without feedback, so that it trains by FFT.
Recurrence (each memory has N coefficients; A', B' are HiPPO's, sampled by zero-order hold with a step of 1/theta):
    u_t = E_x x_t + e        m_t = A' m_{t-1} + B' u_t        h_t = tanh(W_x x_t + W_m m_t + w)

with `feedback`, the Legendre memory unit as it was first:
    u_t = E_x x_t + E_h h_{t-1} + E_m m_{t-1} + e        h_t = tanh(W_x x_t + W_h h_{t-1} + W_m m_t + w)

Parallel form: m is a convolution of u with the impulse response A'^l B', by the FFT (see ops.dense_lti), and its last
value one product; with feedback none.

Cost: training O(T N (log T + d)); a decoded token O(N^2 + N d + d^2); state N numbers a memory.

Paper: Voelker, Kajic and Eliasmith 2019, "Legendre memory units", eq. 1-7; Chilkuri and Eliasmith 2021,
"Parallelizing Legendre memory unit training", eq. 18-26 (LMU-FFT).

Deviations: u is linear in x in both. `dt` rescales the step against theta.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.dense_lti import dense_lti
from longwave.ops.lti import discretize
from longwave.ops.scan import scan
from longwave.parts.hippo import transition
from longwave.parts.linear import Linear
from longwave.state import State


class Window(State):
    m: Float[Tensor, "B M N"]
    h: Float[Tensor, "B D"] | None = None


class LMU(Mixer):
    work = "fft"
    continuous = True
    A: Tensor
    B: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        order: int = 16,  # coefficients a memory: how fine it remembers
        theta: float = 128.0,  # how long it remembers, in steps
        n_memories: int = 1,  # signals that are remembered
        feedback: bool = False,  # memory and output decide what is remembered next: the first LMU, sequential
    ) -> None:
        super().__init__()
        check_positive(order=order, theta=theta, n_memories=n_memories)
        self.theta, self.n_memories, self.feedback = theta, n_memories, feedback
        for name, value in zip("AB", transition("lmu", order), strict=True):
            setattr(self, name, nn.Parameter(value.float(), requires_grad=False))
            hint(self, name, decay=False, float32=True, own_init=True)
        self.from_x = Linear(d_model, n_memories + d_model)
        self.read = Linear(n_memories * order, d_model, bias=False)
        if feedback:
            self.from_h = Linear(d_model, n_memories + d_model, bias=False)
            self.from_m = Linear(n_memories * order, n_memories, bias=False)

    def init_state(self, batch: int) -> Window:
        m = self.zeros(batch, self.n_memories, len(self.B), wide=True)
        h = self.zeros(batch, self.from_x.in_features, dtype=self.from_x.weight.dtype) if self.feedback else None
        return Window(m, h)

    def forward(
        self, x: Tensor, state: Window | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Window | None]:
        step = torch.as_tensor(dt, dtype=self.A.dtype, device=x.device)[..., None] / self.theta
        A, B = discretize(self.A, self.B[:, None], step)
        u, direct = self.from_x(x).split([self.n_memories, x.shape[2]], -1)
        if self.feedback:
            return self._with_feedback(u, direct, A, B[..., 0], state or self.init_state(len(x)), lengths)
        m, last = dense_lti(u, A, B[..., 0], None, None if state is None else state.m, lengths)
        return torch.tanh(self.read(m.flatten(2)) + direct), None if last is None else Window(last)

    def _with_feedback(
        self, u: Tensor, direct: Tensor, A: Tensor, B: Tensor, state: Window, lengths: Tensor | None
    ) -> tuple[Tensor, Window]:
        def cell(now: tuple[Tensor, ...], old: Window) -> tuple[Tensor, Window]:
            ut, ht, At, Bt = (*now, A, B) if A.ndim < 5 else now
            assert old.h is not None
            fed, kept = F.linear(old.h, self.from_h.weight).split([self.n_memories, ht.shape[-1]], -1)
            ut = ut + fed + F.linear(old.m.flatten(1).to(ut.dtype), self.from_m.weight)
            m = torch.einsum("...ij,...j->...i", At, old.m) + Bt * ut[..., None]
            h = torch.tanh(ht + kept + F.linear(m.flatten(1).to(ht.dtype), self.read.weight))
            return h, Window(m, h)

        return scan(cell, (u, direct) if A.ndim < 5 else (u, direct, A, B), state, lengths)
