"""LSTM: gates decide what a cell forgets, takes in and shows, so that gradients survive many steps.

Recurrence:
    i, f, g, o = W x_t + U h_{t-1} + b
    c_t = s(f) c_{t-1} + s(i) tanh(g)        h_t = s(o) tanh(c_t)

    d_context: W [x_t, a_t] in place of W x_t, a_t the context that an earlier layer of attention gives

Parallel form: none; W x is one product for all steps, U h is sequential.

Cost: training and a decoded token O(d^2); state 2 d numbers.

Paper: Hochreiter and Schmidhuber 1997; the forget gate, Gers et al. 2000; its bias of 1, Jozefowicz et al. 2015.

Deviations: one bias instead of torch's two (their sum).
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.gated_cells import lstm
from longwave.state import State


class Cell(State):
    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B D"]


class LSTM(Mixer):
    dead: ClassVar = {"C": "alone there is no layer before it that gives a context"}

    def __init__(
        self,
        d_model: int,
        *,
        forget_bias: float = 1.0,  # what the forget gate's bias starts from
        d_context: int | None = None,  # width of the context that an earlier layer gives ("additive"); None: reads none
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(4 * d_model))
        self.C = nn.Parameter(torch.empty(4 * d_model, d_context).uniform_(-bound, bound)) if d_context else None
        self.takes = ("context",) if d_context else ()
        with torch.no_grad():
            self.b[d_model : 2 * d_model] = forget_bias
        hint(self, "b", decay=False, own_init=True)

    def init_state(self, batch: int) -> Cell:
        return Cell(*(self.zeros(batch, self.U.shape[1]) for _ in "hc"))

    def forward(
        self, x: Tensor, state: Cell | None = None, lengths: Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Cell | None]:  # fmt: skip
        W: Tensor = self.W
        if self.C is not None and handed is not None and "context" in handed:
            x, W = torch.cat([x, handed["context"]], -1), torch.cat([W, self.C], 1)
        y, last = lstm(x, W, self.U, self.b, None if state is None else (state.h, state.c), lengths)
        return y, None if last is None else Cell(*last)
