"""HiPPO-RNN: a gated recurrent network that reads a HiPPO memory of what it said, which is not learnt but fixed.
Recurrence (f is what is remembered, c its coefficients; A_t, B_t are HiPPO's, sampled by the bilinear rule):
    g, r = W x_t + U [h_{t-1}, c_{t-1}] + b        h_t = (1 - s(g)) h_{t-1} + s(g) tanh(r)
    f_t = L h_t        c_t = A_t c_{t-1} + B_t f_t

Parallel form: none; W x and the matrices are made for all steps at once, the rest is sequential.

Cost: training and a decoded token O(d (d + N) + N^2); state d + N numbers a memory, and the time.

Paper: Gu et al. 2020, "HiPPO: recurrent memory with optimal polynomial projections", section 3, eq. 3-5, appendix F.

Deviations: none. legs has all of the past as its window, whatever the time between samples: `dt` is for irregular ones,
and for the windows of legt and lagt.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.lti import discretize
from longwave.ops.scan import scan
from longwave.parts.hippo import relative_steps, transition
from longwave.parts.linear import Linear
from longwave.state import State


class Remembering(State):
    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B M N"]
    time: Float[Tensor, " B"]


class HiPPORNN(Mixer):
    work = "loop"
    continuous = True
    A: Tensor
    B: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        measure: Literal["legs", "legt", "lagt"] = "legs",  # what counts: all of the past, a window, or ever less of it
        order: int = 32,  # coefficients a memory
        n_memories: int = 1,  # signals that are remembered
        theta: float = 128.0,  # the window of legt and lagt, in steps
    ) -> None:
        super().__init__()
        check_positive(order=order, n_memories=n_memories, theta=theta)
        self.measure, self.theta = measure, theta
        self.from_x = Linear(d_model, 2 * d_model)
        bound = 1 / math.sqrt(d_model)
        self.U = nn.Parameter(torch.empty(2 * d_model, d_model + n_memories * order).uniform_(-bound, bound))
        self.L = nn.Parameter(torch.empty(n_memories, d_model).uniform_(-bound, bound))
        for name, value in zip("AB", transition(measure, order), strict=True):
            setattr(self, name, nn.Parameter(value.float(), requires_grad=False))
            hint(self, name, decay=False, float32=True, own_init=True)

    def init_state(self, batch: int) -> Remembering:
        memories, d_model = self.L.shape
        c = self.zeros(batch, memories, len(self.B), wide=True)
        return Remembering(self.zeros(batch, d_model), c, self.zeros(batch, wide=True))

    def forward(
        self, x: Tensor, state: Remembering | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Remembering]:
        gaps = torch.as_tensor(dt, dtype=self.A.dtype, device=x.device)
        gaps = gaps.view(*gaps.shape, *[1] * (2 - gaps.ndim)).expand(-1, x.shape[1])
        since = gaps.new_zeros(1) if state is None else state.time
        A, B = self._discrete(gaps, since)
        start = self.init_state(len(x)) if state is None else state

        def cell(now: tuple[Tensor, ...], old: Remembering) -> tuple[Tensor, Remembering]:
            gates, At, Bt, gap = now
            seen = torch.cat([old.h, old.c.flatten(1).to(old.h.dtype)], 1)
            g, r = (gates + F.linear(seen, self.U)).chunk(2, -1)
            h = old.h + torch.sigmoid(g) * (torch.tanh(r) - old.h)  # lerp wants one dtype, autocast gives two
            c = old.c @ At.mT + F.linear(h, self.L)[..., None] * Bt[:, None]
            return h, Remembering(h, c, old.time + gap)

        every = (t.expand(*x.shape[:2], *t.shape[2:]) for t in (A, B, gaps))
        return scan(cell, (self.from_x(x), *every), start, lengths)

    def _discrete(self, gaps: Tensor, since: Tensor) -> tuple[Tensor, Tensor]:
        """[1 or B, 1 or T, ...]: one for all rows and steps where these do not differ."""
        steady = self.measure != "legs" and gaps.stride(1) == 0
        steps = relative_steps(self.measure, gaps[:, :1] if steady else gaps, since, self.theta)
        A, B = discretize(self.A, self.B[:, None], steps, "bilinear")
        return A, B[..., 0]
