"""UR-LSTM: an LSTM whose cells start with every time scale at once, and whose forget gate a second gate refines.
Recurrence:
    f, g, o, r = W x_t + U h_{t-1} + b        k = s(r) (1 - (1 - s(f))^2) + (1 - s(r)) s(f)^2
    c_t = k c_{t-1} + (1 - k) tanh(g)         h_t = s(o) tanh(c_t)

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d^2); state 2 d numbers.

Paper: Gu et al. 2020, "Improving the gating mechanism of recurrent neural networks", eq. 7-13. The bias of f starts at
logit(u), u ~ U(1/d, 1 - 1/d), that of r at its negative: a saturated gate can still learn.

Deviations: none. With `refine`, `uniform` and `tied` off it is the LSTM, whose input gate is then there again.
"""

import math

import torch
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.lstm import Cell
from longwave.ops.gated_cells import lstm, uniform_bias


class URLSTM(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        refine: bool = True,  # a second gate moves the forget gate within a band around it
        uniform: bool = True,  # the forget gates start uniformly spread; False: from a bias of 1
        tied: bool = True,  # a cell takes in what it forgets; False: an input gate of its own
    ) -> None:
        super().__init__()
        self.refine, self.tied = refine, tied
        n_gates, bound = 4 + refine - tied, 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(n_gates * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(n_gates * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(n_gates * d_model))
        spread = uniform_bias(d_model) if uniform else torch.ones(d_model)
        with torch.no_grad():
            self.b.view(n_gates, d_model)[0 if tied else 1] = spread
            if refine and uniform:
                self.b[-d_model:] = -spread
        hint(self, "b", decay=False, own_init=True)

    def init_state(self, batch: int) -> Cell:
        return Cell(*(self.zeros(batch, self.U.shape[1]) for _ in "hc"))

    def forward(
        self, x: Tensor, state: Cell | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Cell | None]:
        given = None if state is None else (state.h, state.c)
        y, last = lstm(x, self.W, self.U, self.b, given, lengths, self.refine, self.tied)
        return y, None if last is None else Cell(*last)
