"""LSTMN: an LSTM whose memory is not one cell but a tape of all cells so far, which it reads by attention.

Recurrence (the state is the tape and the last summary h'):
    e_ti = w . tanh(A h_i + X x_t + S h'_{t-1})        a_t = softmax(e_t) over i < t
    h'_t = sum_i a_ti h_i        c'_t = sum_i a_ti c_i
    i, f, o, g = W x_t + U h'_t + b        c_t = s(f) c'_t + s(i) tanh(g)        h_t = s(o) tanh(c_t)

Parallel form: none; W x and X x are products for all steps, the rest is sequential.

Cost: training O(T^2 d + T d^2); a decoded token O(t d + d^2); state (2 t + 1) d numbers.

Paper: Cheng et al. 2016, section 3.1, eq. 4 to 9 (intra-attention).

Deviations: the gates have a bias, and the forget gate's starts from 1.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.attention import weigh
from longwave.ops.gated_cells import lstm_cell
from longwave.parts.linear import Linear
from longwave.record import record
from longwave.state import State, write_at


class Tape(State):
    """All hidden states and cells so far, in a buffer that grows by doubling, or of fixed capacity."""

    hc: Float[Tensor, "B S two_D"]
    summary: Float[Tensor, "B D"]
    n: Int[Tensor, " B"]
    fixed: bool = False

    def snapshot(self) -> "Tape":
        return self  # written only at positions >= n


class LSTMN(Mixer):
    work = "quadratic"
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        d_score: int | None = None,  # hidden width of the network that scores; None: d_model
    ) -> None:
        super().__init__()
        d_score, bound = d_score or d_model, 1 / math.sqrt(d_model)
        check_positive(d_score=d_score)
        self.W = Linear(d_model, 4 * d_model)
        self.U = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        with torch.no_grad():
            self.W.bias.zero_()[d_model : 2 * d_model] = 1.0
        hint(self.W, "bias", decay=False, own_init=True)
        self.A = nn.Parameter(torch.empty(d_score, d_model).uniform_(-bound, bound))
        self.X = Linear(d_model, d_score, bias=False)
        self.S = nn.Parameter(torch.empty(d_score, d_model).uniform_(-bound, bound))
        self.score = nn.Parameter(torch.randn(d_score) / math.sqrt(d_score))

    def init_state(self, batch: int, capacity: int | None = None) -> Tape:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        d = self.U.shape[1]
        tape, summary = self.zeros(batch, capacity or 0, 2 * d), self.zeros(batch, d)
        return Tape(tape, summary, self.zeros(batch, dtype=torch.long), capacity is not None)

    def forward(
        self, x: Tensor, state: Tape | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tape | None]:
        old, d = self.init_state(len(x)) if state is None else state, x.shape[2]
        held, T = old.hc.shape[1], x.shape[1]
        at = torch.arange(held + T, device=x.device)
        seen = (at < old.n[:, None]) | (at >= held)
        tape = torch.cat([old.hc, F.linear(old.hc[..., :d], self.A)], -1)  # h, c and A h
        summary, ys, weights = old.summary, [], []
        for t, (gates, query) in enumerate(zip(self.W(x).unbind(1), self.X(x).unbind(1), strict=True)):
            query = query + F.linear(summary, self.S)
            a = weigh(torch.tanh(tape[..., 2 * d :] + query[:, None]) @ self.score, seen[:, : held + t])
            read, c = (a.to(tape)[:, None] @ tape[..., : 2 * d])[:, 0].split(d, -1)
            h, c = lstm_cell(gates, self.U, read, c)
            tape = torch.cat([tape, torch.cat([h, c, F.linear(h, self.A)], -1)[:, None]], 1)
            summary = read if lengths is None else torch.where((t < lengths)[:, None], read, summary)
            ys.append(h)
            weights.append(a)
        record("weights", lambda: torch.stack([F.pad(a, (0, held + T - a.shape[1])) for a in weights], 1)[:, None])
        y = torch.stack(ys, 1)
        if state is None:
            return y, None
        pos = state.n[:, None] + torch.arange(T, device=x.device)
        hc = write_at(state.hc, pos, tape[:, held:, : 2 * d], fixed=state.fixed)
        return y, Tape(hc, summary, state.n + ends(x, lengths), state.fixed)
