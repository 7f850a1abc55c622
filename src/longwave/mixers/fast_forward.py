"""Fast-forward LSTMs: beside a deep stack of LSTMs runs a path of linear maps, on which gradients pass every level.

Recurrence (level k = 1 ... n; f^1_t = W^1 x_t):
    f^k_t = W^k [half(f^{k-1}_t), h^{k-1}_t]                half: the first 2 d numbers of f's 4 d
    i, g, z, o = f^k_t + U^k h^k_{t-1} + b^k
    c^k_t = s(g) c^k_{t-1} + s(i) tanh(z)                   h^k_t = s(o) tanh(c^k_t)
    y_t = W_o [f^n_t, h^n_t]

Parallel form: none; level by level, W^k [...] is one product for all steps, U^k h^k is sequential.

Cost: training and a decoded token O(n d^2); state 2 n d numbers.

Paper: Zhou, Cao, Wang, Li and Xu 2016, "Deep recurrent models with fast-forward connections for neural machine
translation", section 3.

Deviations: an LSTM without peepholes; all levels read one way ("bidirectional" runs another stack the other way), where
the paper's two columns turn round at every level; W_o brings [f^n, h^n] back to the model's width.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.gated_cells import lstm
from longwave.ops.linear import linear
from longwave.parts.dropout import Dropout
from longwave.parts.linear import Linear
from longwave.state import State


class Cells(State):
    h: Float[Tensor, "B levels D"]
    c: Float[Tensor, "B levels D"]


class FastForward(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        levels: int = 4,  # LSTMs on one another
        forget_bias: float = 1.0,  # what the forget gates' biases start from
        dropout: float = 0.0,  # of what an LSTM shows to the one above, in training
    ) -> None:
        super().__init__()
        check_positive(levels=levels)
        bound = 1 / math.sqrt(d_model)
        widths = [d_model, *[3 * d_model] * (levels - 1)]
        self.W = nn.ParameterList(torch.empty(4 * d_model, width).uniform_(-bound, bound) for width in widths)
        self.U = nn.Parameter(torch.empty(levels, 4 * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(levels, 4 * d_model))
        with torch.no_grad():
            self.b[:, d_model : 2 * d_model] = forget_bias
        self.out = Linear(5 * d_model, d_model, bias=False)
        self.dropout = Dropout(dropout)
        hint(self, "b", decay=False, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Cells:
        return Cells(*(self.zeros(batch, *self.U.shape[::2]) for _ in "hc"))

    def forward(
        self, x: Tensor, state: Cells | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Cells | None]:
        d, lasts = x.shape[2], []
        seen = f = h = x
        for k, W in enumerate(self.W):
            if k:
                seen = torch.cat([f, self.dropout(h)], -1)
            h, last = lstm(seen, W, self.U[k], self.b[k], None if state is None else (state.h[:, k], state.c[:, k]),
                           lengths)  # fmt: skip
            lasts.append(last)
            f = linear(seen, W[: 2 * d] if k + 1 < len(self.W) else W)  # once more: the LSTM keeps its own to itself
        y = self.out(torch.cat([f, h], -1))
        return y, None if state is None else Cells(*(torch.stack(each, 1) for each in zip(*lasts, strict=True)))
