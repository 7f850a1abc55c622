"""ODE-RNN: between samples the hidden state follows a learned differential equation, at each one a GRU updates it.

Recurrence:
    g = ODESolve(f, h_{t-1}, time since the previous sample), f(h) = V tanh(W h + b) + c
    h_t = GRU(x_t, g)

Parallel form: none; the inputs' part of the gates is one product for all steps, the rest is sequential.

Cost: training and a decoded token O(s d^2) for s evaluations of f; state d numbers.

Paper: Rubanova, Chen and Duvenaud 2019, "Latent ODEs for irregularly-sampled time series", section 3.1, Algorithm 1.

Deviations: the solver takes a fixed number of steps a gap, so that cuts, batches and pads change nothing; f has one
hidden layer.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.mixer import Mixer
from longwave.mixers.rnn import Hidden
from longwave.ops.gated_cells import gru_cell
from longwave.ops.linear import linear
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.parts.ode import ode_step
from longwave.parts.time import steps


class ODERNN(Mixer):
    work = "loop"
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        solver: Literal["rk4", "euler"] = "rk4",  # how the equation is solved
        solver_steps: int = 1,  # steps that the solver takes from one sample to the next
    ) -> None:
        super().__init__()
        check_positive(solver_steps=solver_steps)
        self.solver, self.solver_steps = solver, solver_steps
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(3 * d_model))
        self.b_n = nn.Parameter(torch.zeros(d_model))
        self.field_in, self.field_out = Linear(d_model, d_model), Linear(d_model, d_model)

    def field(self, h: Tensor) -> Tensor:
        """f; written as functions, for it runs many times a step."""
        inner, outer = self.field_in, self.field_out
        return F.linear(torch.tanh(F.linear(h, inner.weight, inner.bias)), outer.weight, outer.bias)

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, self.U.shape[1]))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Hidden | None]:
        def cell(given: tuple[Tensor, Tensor], old: Hidden) -> tuple[Tensor, Hidden]:
            gates, gap = given
            h = old.h
            for _ in range(self.solver_steps):
                h = ode_step(self.field, h, gap, self.solver)
            h = gru_cell(gates, self.U, self.b_n, h)
            return h, Hidden(h)

        given = linear(x, self.W, self.b), steps(x, dt) / self.solver_steps
        return scan(cell, given, state or self.init_state(len(x)), lengths)
