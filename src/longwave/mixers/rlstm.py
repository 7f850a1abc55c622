"""r-LSTM: an LSTM that, while it trains, must reconstruct stretches of its past from its state: so it remembers them.

Recurrence: that of the LSTM; and from a random sixteenth of the tokens, the anchors,
    L = |D(h_t, c_t; x_{t-l+1} ... x_{t-1}) - (x_{t-l+2} ... x_t)|^2 / (l - 1) d
where D, another LSTM, begins with the anchor's h and c and reads each input before it guesses the next.

Parallel form: none for the states; all anchors of a batch are reconstructed side by side.

Cost: training O(d^2) a token, and 2 l d^2 an anchor; a decoded token O(d^2); state 2 d + 3 l d numbers.

Paper: Trinh et al. 2018, "Learning longer-term dependencies in RNNs with auxiliary losses", section 3, Figure 2.

Deviations: inputs are vectors, so the loss is a squared error, and it does not move what it should guess. Its gradient
goes l steps back in the LSTM (truncated there, as in the paper); for that the state keeps as many inputs and states,
and a cut changes nothing. The stretch ends at its anchor; at the beginning it is what there is.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError
from longwave.hints import hint
from longwave.mixer import Mixer, ends, valid
from longwave.mixers.lstm import Cell
from longwave.ops.gated_cells import lstm, lstm_cell
from longwave.ops.linear import linear
from longwave.ops.ragged import with_past, zero_pads
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.record import aux_loss
from longwave.state import State


class Remembered(State):
    x: Float[Tensor, "B M D"]  # the last inputs
    cells: Float[Tensor, "B M+1 2*D"]  # the states before each of them, and the present one: h and c side by side
    n: Int[Tensor, " B"]  # inputs so far


class RLSTM(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        segment: int = 8,  # inputs that are reconstructed, and steps that the loss reaches back
        rate: float = 1 / 16,  # the share of tokens that are anchors
        weight: float = 1.0,  # of the reconstruction in the training loss; 0: a plain LSTM
        forget_bias: float = 1.0,  # what the forget gate's bias starts from
    ) -> None:
        super().__init__()
        if segment < 2 or not 0 < rate <= 1:
            raise UserError(f"segment must be at least 2 and rate above 0 and at most 1, got {segment} and {rate}")
        self.segment, self.rate, self.weight = segment, rate, weight
        self.W, self.U, self.b = _weights(d_model, forget_bias)
        self.W_back, self.U_back, self.b_back = _weights(d_model, forget_bias)
        self.guess = Linear(d_model, d_model)
        for name in ("b", "b_back"):
            hint(self, name, decay=False, own_init=True)

    def init_state(self, batch: int) -> Remembered:
        d, held = self.U.shape[1], self.segment
        cells = self.zeros(batch, held + 1, 2 * d)
        return Remembered(self.zeros(batch, held, d), cells, self.zeros(batch, dtype=torch.long))

    def forward(
        self, x: Tensor, state: Remembered | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Remembered | None]:
        def cell(gates: Tensor, old: Cell) -> tuple[Tensor, Cell]:
            h, c = lstm_cell(gates, self.U, old.h, old.c)
            return torch.cat([h, c], -1), Cell(h, c)

        first = Cell(*(state or self.init_state(len(x))).cells[:, -1].chunk(2, -1))
        cells, _ = scan(cell, linear(x, self.W, self.b), first)
        held = self.segment
        inputs, last_inputs = with_past(x, held, None if state is None else state.x, lengths)
        before, last_cells = with_past(cells, held + 1, None if state is None else state.cells, lengths)
        if self.weight:
            n = torch.zeros(len(x), dtype=torch.long, device=x.device) if state is None else state.n
            aux_loss("reconstruction", lambda: self._reconstruct(inputs, before.detach(), n, lengths))
        y = cells[..., : x.shape[2]]
        if state is None or last_inputs is None or last_cells is None:
            return y, None
        return y, Remembered(last_inputs, last_cells, state.n + ends(x, lengths))

    def _reconstruct(self, inputs: Tensor, cells: Tensor, n: Tensor, lengths: Tensor | None) -> Tensor:
        """The loss of each anchor; `inputs` begin with the window, `cells[:, i]` is the state before `inputs[:, i]`."""
        held, here = self.segment, inputs[:, self.segment :]
        anchor = torch.rand(here.shape[:2], device=here.device) < self.rate
        row, t = torch.nonzero(anchor if lengths is None else anchor & valid(here, lengths), as_tuple=True)
        length = (n[row] + t + 1).clamp_max(held)
        begin = t + 1 + held - length
        at = begin[:, None] + torch.arange(held, device=t.device)
        stretch = inputs[row[:, None], at.clamp_max(t[:, None] + held)]
        h, c = cells[row, begin].chunk(2, -1)
        _, seen = lstm(stretch, self.W, self.U, self.b, (h, c), length)
        back, _ = lstm(stretch[:, :-1], self.W_back, self.U_back, self.b_back, seen)
        error = zero_pads((self.guess(back) - stretch[:, 1:].detach()).square(), length - 1)
        return self.weight / self.rate * error.sum((1, 2)) / ((length - 1).clamp_min(1) * here.shape[2])


def _weights(d_model: int, forget_bias: float) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    bound = 1 / math.sqrt(d_model)
    W, U = (nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound)) for _ in "WU")
    b = torch.zeros(4 * d_model)
    b[d_model : 2 * d_model] = forget_bias
    return W, U, nn.Parameter(b)
