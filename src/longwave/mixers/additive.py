"""Additive attention and its recurrent decoder: before each step a GRU looks up what it needs in an encoder's memory.

Recurrence (s is the decoder's cell; the memory h_1 ... h_S never changes):
    e_ti = w . tanh(W_a s_{t-1} + U_a h_i)        a_t = softmax(e_t)        c_t = sum_i a_ti h_i
    s_t = GRU([x_t, c_t], s_{t-1})                y_t = W_o [s_t, c_t]      s_0 = tanh(W_s mean(h))

Parallel form: none; U_a h and the inputs' share of the gates are products for all steps, the rest is sequential.

Cost: training O(T S d + T d^2); a decoded token O(S d + d^2); state (1 + 2 S) d numbers, whatever T.

Paper: Bahdanau et al. 2015, section 3.1 and appendix A.

Deviations: the cell is torch's GRU, whose reset follows the product; s_0 is made from the memory's mean, not from the
backward encoder's last state, so that any encoder serves; a linear map stands for the maxout before the output.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import weigh
from longwave.ops.gated_cells import gru_cell
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.record import record
from longwave.state import State


class Decoder(State):
    s: Float[Tensor, "B D"]
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
    ) -> None:
        super().__init__()
        self.d_memory, d_score, bound = d_memory or d_model, d_score or d_model, 1 / math.sqrt(d_model)
        check_positive(d_memory=self.d_memory, d_score=d_score)
        self.W = Linear(d_model, 3 * d_model)
        self.C = nn.Parameter(torch.empty(3 * d_model, self.d_memory).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(3 * d_model, d_model).uniform_(-bound, bound))
        self.b_n = nn.Parameter(torch.zeros(d_model))
        self.first = Linear(self.d_memory, d_model)
        self.key = Linear(self.d_memory, d_score)
        self.query = nn.Parameter(torch.empty(d_score, d_model).uniform_(-bound, bound))
        self.score = nn.Parameter(torch.randn(d_score) / math.sqrt(d_score))
        self.out = Linear(d_model + self.d_memory, d_model, bias=False)
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
        self, x: Tensor, state: Decoder | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Decoder | None]:
        if state is None:
            raise UserError("Additive needs the encoder's memory: pass init_state(batch, memory, lengths) as its state")
        s, k, v = state.s, state.k, state.v
        seen = torch.arange(k.shape[1], device=x.device) < state.n[:, None]
        found, weights = [], []
        for t, gates in enumerate(self.W(x).unbind(1)):
            a = weigh(torch.tanh(k + F.linear(s, self.query)[:, None]) @ self.score, seen)
            c = (a.to(v)[:, None] @ v)[:, 0]
            new = gru_cell(gates + F.linear(c, self.C), self.U, self.b_n, s)
            found.append(torch.cat([new, c], -1))
            weights.append(a)
            s = new if lengths is None else torch.where((t < lengths)[:, None], new, s)
        record("weights", lambda: torch.stack(weights, 1)[:, None])
        return self.out(torch.stack(found, 1)), Decoder(s, k, v, state.n)
