"""UR-GRU: a GRU that starts with every time scale at once, and whose update gate a second gate refines.
Recurrence:
    r, z, n, q = W x_t + b; the same of U h_{t-1} added, inside n after the reset, as in the GRU
    k = s(q) (1 - (1 - s(z))^2) + (1 - s(q)) s(z)^2        h_t = (1 - k) tanh(n) + k h_{t-1}

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d^2); state d numbers.

Paper: Gu et al. 2020, "Improving the gating mechanism of recurrent neural networks", eq. 7-10, in the GRU of Cho et al.
2014. The bias of z starts at logit(u), u ~ U(1/d, 1 - 1/d), that of q at its negative.

Deviations: the reset gate applies after the matrix product, as in our GRU, which it is with `refine` and `uniform` off.
"""

import math

import torch
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.rnn import Hidden
from longwave.ops.gated_cells import gru, uniform_bias


class URGRU(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        refine: bool = True,  # a second gate moves the update gate within a band around it
        uniform: bool = True,  # the update gates start uniformly spread; False: from a bias of 0
    ) -> None:
        super().__init__()
        n_gates, bound = 3 + refine, 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(n_gates * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(n_gates * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(n_gates * d_model))
        self.b_n = nn.Parameter(torch.zeros(d_model))
        if uniform:
            spread = uniform_bias(d_model)
            with torch.no_grad():
                self.b[d_model : 2 * d_model] = spread
                self.b[3 * d_model :] = -spread if refine else 0
        hint(self, "b", decay=False, own_init=True)

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, self.U.shape[1]))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        y, h = gru(x, self.W, self.U, self.b, self.b_n, None if state is None else state.h, lengths)
        return y, None if h is None else Hidden(h)
