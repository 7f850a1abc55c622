"""Lipschitz RNN: a damped linear flow plus a Lipschitz nonlinearity, its growth set by the matrices' symmetric parts.

Recurrence (the sampled equation h' = A h + tanh(W h + U x + b)):
    A = (1 - beta) (M + M^T) + beta (M - M^T) - gamma I        W likewise, from a matrix of its own
    h_t = h_{t-1} + e (A h_{t-1} + tanh(W h_{t-1} + U x_t + b))        y_t = C h_t

Parallel form: none; U x is one product for all steps, A h and W h are one sequential product.

Cost: training and a decoded token O(d^2), twice that with `midpoint`; state d numbers.

Paper: Erichson et al. 2021, "Lipschitz recurrent neural networks", eq. 2 and 3; sampled by either of its two schemes.

Deviations: A and W share beta and gamma, as in the authors' code. `dt` stretches the step e.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.rnn import Hidden
from longwave.ops.linear import linear
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.parts.ode import ode_step
from longwave.parts.time import steps


class LipschitzRNN(Mixer):
    work = "loop"
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        beta: float = 0.75,  # from 0.5 to 1: how skew A and W are; 1 neither grows nor shrinks
        gamma: float = 0.001,  # damping
        step: float = 0.03,  # time between two tokens
        solver: Literal["euler", "midpoint"] = "euler",  # how the equation is sampled
    ) -> None:
        super().__init__()
        self.beta, self.gamma, self.step, self.solver = beta, gamma, step, solver
        bound = 1 / math.sqrt(d_model)
        self.M = nn.Parameter(torch.randn(2, d_model, d_model) * bound)
        self.U = nn.Parameter(torch.empty(d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(d_model))
        self.out = Linear(d_model, d_model)
        hint(self, "M", own_init=True)
        hint(self.out, "weight", residual=True)

    def matrices(self) -> Float[Tensor, "2 D D"]:
        """A and W."""
        turned = self.M.mT
        damping = self.gamma * torch.eye(len(self.b), device=self.M.device, dtype=self.M.dtype)
        return (1 - self.beta) * (self.M + turned) + self.beta * (self.M - turned) - damping

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, len(self.U)))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Hidden | None]:
        both = self.matrices().flatten(0, 1)

        def slope(h: Tensor, ux: Tensor) -> Tensor:
            flow, inner = F.linear(h, both).chunk(2, -1)
            return flow + torch.tanh(inner + ux)

        def cell(given: tuple[Tensor, Tensor], old: Hidden) -> tuple[Tensor, Hidden]:
            ux, time = given
            h = ode_step(lambda h: slope(h, ux), old.h, time, self.solver)
            return h, Hidden(h)

        given = linear(x, self.U, self.b), self.step * steps(x, dt)
        h, state = scan(cell, given, state or self.init_state(len(x)), lengths)
        return self.out(h), state
