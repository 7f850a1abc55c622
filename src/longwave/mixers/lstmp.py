"""LSTM with a projection: the cell is wide, and what it shows is mapped to the model's width before it comes back.

Recurrence:
    i, f, g, o = W x_t + U h_{t-1} + b
    c_t = s(f) c_{t-1} + s(i) tanh(g)        h_t = P (s(o) tanh(c_t))

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d d_cell); state d + d_cell numbers.

Paper: Sak, Senior and Beaufays 2014, "Long short-term memory based recurrent neural network architectures for large
scale acoustic modeling", section 2.2; in ELMo, Peters et al. 2018, section 3.4.

Deviations: no peepholes, and no second projection that does not come back; ELMo clips c and h at 3, this does not.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.gated_cells import lstm_cell
from longwave.ops.linear import linear
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.state import State


class WideCell(State):
    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B C"]


class LSTMP(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        d_cell: int | None = None,  # width of the cell; None: 4 d_model
        forget_bias: float = 1.0,  # what the forget gate's bias starts from
    ) -> None:
        super().__init__()
        self.d_cell = 4 * d_model if d_cell is None else d_cell
        check_positive(d_cell=self.d_cell)
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(4 * self.d_cell, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(4 * self.d_cell, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(4 * self.d_cell))
        with torch.no_grad():
            self.b[self.d_cell : 2 * self.d_cell] = forget_bias
        self.out = Linear(self.d_cell, d_model, bias=False)
        hint(self, "b", decay=False, own_init=True)

    def init_state(self, batch: int) -> WideCell:
        return WideCell(self.zeros(batch, self.U.shape[1]), self.zeros(batch, self.d_cell))

    def forward(
        self, x: Tensor, state: WideCell | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, WideCell | None]:
        def cell(gates: Tensor, old: WideCell) -> tuple[Tensor, WideCell]:
            shown, c = lstm_cell(gates, self.U, old.h, old.c)
            h = self.out(shown)
            return h, WideCell(h, c)

        first = self.init_state(len(x)) if state is None else state
        y, last = scan(cell, linear(x, self.W, self.b), first, lengths)
        return y, None if state is None else last
