"""The decoder of Show, Attend and Tell: before each word an LSTM looks at a part of the picture, as much as it needs.

Recurrence (the memory a_1 ... a_S, a grid of features, never changes):
    e_ti = w . tanh(W_a a_i + W_h h_{t-1})        alpha_t = softmax(e_t)
    z_t = s(f h_{t-1} + b_f) sum_i alpha_ti a_i
    h_t, c_t = LSTM([x_t, z_t], h_{t-1}, c_{t-1})        y_t = L_h h_t + L_z z_t
    h_0 = tanh(W_1 mean(a) + b_1)        c_0 = tanh(W_2 mean(a) + b_2)

Parallel form: none; W_a a and the inputs' share of the gates are products for all steps, the rest is sequential.

Cost: training O(T S d + T d^2); a decoded token O(S d + d^2); state (2 + 2 S) d numbers, whatever T.

Paper: Xu et al. 2015, "Show, Attend and Tell", sections 3.1.2 (the decoder), 4.2 and 4.2.1 (soft attention, doubly
stochastic; the gate beta).

Deviations: the word's embedding is added to y by the residual sum around this layer; h_0 and c_0 are made by one layer.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, valid
from longwave.ops.attention import weigh
from longwave.ops.gated_cells import lstm_cell
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.record import aux_loss, record
from longwave.state import State


class Telling(State):
    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B D"]
    k: Float[Tensor, "B S A"]
    v: Float[Tensor, "B S M"]
    n: Int[Tensor, " B"]


class ShowAttendTell(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        d_memory: int | None = None,  # width of the grid's features; None: d_model
        d_score: int | None = None,  # hidden width of the network that scores; None: d_model
        coverage: float = 0.0,  # weight of the pull towards looking everywhere equally often; the paper's is 1
    ) -> None:
        super().__init__()
        self.d_memory, d_score, bound = d_memory or d_model, d_score or d_model, 1 / math.sqrt(d_model)
        check_positive(d_memory=self.d_memory, d_score=d_score)
        self.coverage = coverage
        self.W = Linear(d_model, 4 * d_model)
        self.Z = nn.Parameter(torch.empty(4 * d_model, self.d_memory).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        self.first = Linear(self.d_memory, 2 * d_model)
        self.key = Linear(self.d_memory, d_score)
        self.query = nn.Parameter(torch.empty(d_score, d_model).uniform_(-bound, bound))
        self.score = nn.Parameter(torch.randn(d_score) / math.sqrt(d_score))
        self.gate = Linear(d_model, 1)
        self.out = Linear(d_model + self.d_memory, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(  # type: ignore[override]
        self, batch: int, memory: Float[Tensor, "B S M"], lengths: Int[Tensor, " B"] | None = None
    ) -> Telling:
        """Projects the grid, once a picture; `lengths` are the grids'."""
        if len(memory) != batch:
            raise UserError(f"a batch of {batch} needs {batch} memories, got {len(memory)}")
        n = torch.full((batch,), memory.shape[1], device=memory.device) if lengths is None else lengths
        v = zero_pads(memory, lengths)
        h, c = torch.tanh(self.first(v.sum(1) / n.clamp_min(1)[:, None].to(v))).chunk(2, -1)
        return Telling(h, c, self.key(v), v, n)

    def forward(
        self, x: Tensor, state: Telling | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Telling | None]:
        if state is None:
            raise UserError("ShowAttendTell needs a memory: pass init_state(batch, memory, lengths) as its state")
        h, c, k, v = state.h, state.c, state.k, state.v
        seen = torch.arange(k.shape[1], device=x.device) < state.n[:, None]
        found, weights = [], []
        for t, gates in enumerate(self.W(x).unbind(1)):
            a = weigh(torch.tanh(k + F.linear(h, self.query)[:, None]) @ self.score, seen)
            z = torch.sigmoid(self.gate(h)) * (a.to(v)[:, None] @ v)[:, 0]
            new_h, new_c = lstm_cell(gates + F.linear(z, self.Z), self.U, h, c)
            found.append(torch.cat([new_h, z], -1))
            weights.append(a)
            on = None if lengths is None else (t < lengths)[:, None]
            h, c = (new_h, new_c) if on is None else (torch.where(on, new_h, h), torch.where(on, new_c, c))
        record("weights", lambda: torch.stack(weights, 1)[:, None])
        if self.coverage:
            aux_loss("coverage", lambda: self._uneven(torch.stack(weights, 1), seen, lengths), per_token=False)
        return self.out(torch.stack(found, 1)), Telling(h, c, k, v, state.n)

    def _uneven(self, weights: Tensor, seen: Tensor, lengths: Tensor | None) -> Tensor:
        looked = (weights * valid(weights, lengths)[..., None] if lengths is not None else weights).sum(1)
        return self.coverage * torch.where(seen, (1 - looked).square(), 0)
