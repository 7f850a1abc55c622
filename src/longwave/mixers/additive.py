"""Additive attention and its recurrent decoder: before each step a cell looks up what it needs in an encoder's memory.

Recurrence (s is the decoder's cell; the memory h_1 ... h_S never changes):
    e_ti = w . tanh(W_a s_{t-1} + U_a h_i)        a_t = softmax(e_t)        c_t = sum_i a_ti h_i
    s_t = GRU([x_t, c_t], s_{t-1})                y_t = W_o [s_t, c_t]      s_0 = tanh(W_s mean(h))

    cell "lstm": s_t is an LSTM's, whose cell starts likewise, and with d_cell what a wide cell shows, projected
    hand_on: y_t = s_t, and later layers take c_t

Parallel form: none; U_a h and the inputs' share of the gates are products for all steps, the rest is sequential.

Cost: training O(T S d + T d^2); a decoded token O(S d + d^2); state (1 + 2 S) d numbers, whatever T.

Paper: Bahdanau et al. 2015, section 3.1 and appendix A; an LSTM whose context is handed on, Wu et al. 2016,
section 3; a wide cell, Shazeer et al. 2017, appendix E.

Deviations: the cell is torch's GRU, whose reset follows the product; s_0 is made from the memory's mean, not from the
backward encoder's last state, so that any encoder serves; a linear map stands for the maxout before the output.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import weigh
from longwave.ops.gated_cells import gru_cell, lstm_cell
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.record import record
from longwave.state import State


class Decoder(State):
    s: Float[Tensor, "B cell"]  # an LSTM's h and c side by side
    k: Float[Tensor, "B S A"]
    v: Float[Tensor, "B S M"]
    n: Int[Tensor, " B"]


class Additive(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        d_memory: int | None = None,  # width of the encoder's output; None: d_model
        d_score: int | None = None,  # hidden width of the network that scores; None: d_model
        cell: Literal["gru", "lstm"] = "gru",  # what looks
        d_cell: int | None = None,  # width of an LSTM's cell, whose output is projected to the model's; None: d_model
        hand_on: bool = False,  # the output is the cell's alone, and later layers take the context
    ) -> None:
        super().__init__()
        self.d_memory, d_score, bound = d_memory or d_model, d_score or d_model, 1 / math.sqrt(d_model)
        width = d_cell or d_model
        check_positive(d_memory=self.d_memory, d_score=d_score, d_cell=width)
        if d_cell and cell == "gru":
            raise UserError('a cell "gru" has no projection: d_cell goes with "lstm"')
        self.gives = ("context",) if hand_on else ()
        n_gates, d_state = (3, d_model) if cell == "gru" else (4, d_model + width)
        self.W = Linear(d_model, n_gates * width)
        self.C = nn.Parameter(torch.empty(n_gates * width, self.d_memory).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(n_gates * width, d_model).uniform_(-bound, bound))
        self.b_n = nn.Parameter(torch.zeros(d_model)) if cell == "gru" else None
        self.project = Linear(d_cell, d_model, bias=False) if d_cell else None
        self.first = Linear(self.d_memory, d_state)
        self.key = Linear(self.d_memory, d_score)
        self.query = nn.Parameter(torch.empty(d_score, d_model).uniform_(-bound, bound))
        self.score = nn.Parameter(torch.randn(d_score) / math.sqrt(d_score))
        self.out = None if hand_on else Linear(d_model + self.d_memory, d_model, bias=False)
        if self.out is not None:
            hint(self.out, "weight", residual=True)

    def init_state(  # type: ignore[override]
        self, batch: int, memory: Float[Tensor, "B S M"], lengths: Int[Tensor, " B"] | None = None
    ) -> Decoder:
        """Projects the encoder's output, once a source; `lengths` are the sources'."""
        if len(memory) != batch:
            raise UserError(f"a batch of {batch} needs {batch} memories, got {len(memory)}")
        n = torch.full((batch,), memory.shape[1], device=memory.device) if lengths is None else lengths
        v = zero_pads(memory, lengths)
        s = torch.tanh(self.first(v.sum(1) / n.clamp_min(1)[:, None].to(v)))
        return Decoder(s, self.key(v), v, n)

    def forward(
        self, x: Tensor, state: Decoder | None = None, lengths: Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Decoder | None]:  # fmt: skip
        if state is None:
            raise UserError("Additive needs the encoder's memory: pass init_state(batch, memory, lengths) as its state")
        s, k, v = state.s, state.k, state.v
        seen = torch.arange(k.shape[1], device=x.device) < state.n[:, None]
        d = self.U.shape[1]
        said, contexts, weights = [], [], []
        for t, gates in enumerate(self.W(x).unbind(1)):
            a = weigh(torch.tanh(k + F.linear(s[:, :d], self.query)[:, None]) @ self.score, seen)
            c = (a.to(v)[:, None] @ v)[:, 0]
            gates = gates + F.linear(c, self.C)
            if self.b_n is not None:
                new = gru_cell(gates, self.U, self.b_n, s)
            else:
                shown, kept = lstm_cell(gates, self.U, s[:, :d], s[:, d:])
                new = torch.cat([shown if self.project is None else self.project(shown), kept], -1)
            said.append(new[:, :d])
            contexts.append(c)
            weights.append(a)
            s = new if lengths is None else torch.where((t < lengths)[:, None], new, s)
        record("weights", lambda: torch.stack(weights, 1)[:, None])
        y, context, state = torch.stack(said, 1), torch.stack(contexts, 1), Decoder(s, k, v, state.n)
        if self.out is not None:
            return self.out(torch.cat([y, context], -1)), state
        if handed is not None:
            handed["context"] = context
        return y, state
