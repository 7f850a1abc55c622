"""GRU: a simpler gated cell; one gate mixes old state and new, another how much of the old the new may see.
Recurrence:
    r, z = s(W x_t + U h_{t-1} + b)        n = tanh(W_n x_t + b_n + r (U_n h_{t-1} + c_n))
    h_t = (1 - z) n + z h_{t-1}

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d^2); state d numbers.

Paper: Cho et al. 2014, eq. 5-8.

Deviations: the reset gate applies after the matrix product, as in torch.nn.GRU and cuDNN.
"""

import math

import torch
from torch import Tensor, nn

from longwave.mixer import Mixer
from longwave.mixers.rnn import Hidden
from longwave.ops.gated_cells import gru


class GRU(Mixer):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(3 * d_model))
        self.b_n = nn.Parameter(torch.zeros(d_model))

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, self.U.shape[1]))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        y, h = gru(x, self.W, self.U, self.b, self.b_n, None if state is None else state.h, lengths)
        return y, None if h is None else Hidden(h)
