"""Neural Turing machine: an LSTM with a memory beside it, read and written softly, found by content and by moving on.

Recurrence (per head a key k, strength b, gate g, shift s, sharpness p, all from the controller's h_t):
    h_t = LSTM(x_t, r_{t-1})
    w = softmax_i(b cos(k, M_{t-1}(i)));  w = g w + (1 - g) w_{t-1};  w = shift w by s, around;  w_t = w^p / sum w^p
    M_t(i) = M_{t-1}(i) (1 - w_t(i) e_t) + w_t(i) a_t        r_t = sum_i w'_t(i) M_t(i)        y_t = W [h_t, r_t]

Parallel form: none; W x is one product for all steps, the rest is sequential.

Cost: training and a decoded token O(d^2 + n w) for n slots of w numbers; state 2 d + n (w + 2 heads) numbers.

Paper: Graves, Wayne and Danihelka 2014, "Neural Turing machines", sections 3.1-3.3, eq. 2-9.

Deviations: both kinds of heads address the memory as it was before the write, and then read it as it is after. The
memory starts at learned numbers, the weights at slot 0.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.gated_cells import lstm_cell
from longwave.ops.linear import linear
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.record import record
from longwave.state import State

SHIFT = 1  # slots that a head can move in one step, either way


class Tape(State):
    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B D"]
    memory: Float[Tensor, "B S V"]
    weights: Float[Tensor, "B H S"]  # of the heads that read, then of those that write
    read: Float[Tensor, "B K"]  # what all heads read last, side by side


def address(
    memory: Float[Tensor, "B S V"],
    before: Float[Tensor, "B H S"],
    key: Float[Tensor, "B H V"],
    rest: Float[Tensor, "B H I"],
) -> Float[Tensor, "B H S"]:
    """The weights of all heads; `rest` holds, before any squashing, the strength, the gate, the sharpness and a logit
    for each shift from -n to n."""
    strength, gate, sharp, shifts = rest.split([1, 1, 1, rest.shape[2] - 3], -1)
    unit, units = (F.normalize(each, dim=-1, eps=1e-6) for each in (key, memory))
    w = torch.softmax(F.softplus(strength) * (unit @ units.mT), -1)
    w = before + torch.sigmoid(gate) * (w - before)
    reach = shifts.shape[2] // 2
    around = F.pad(w, (reach, reach), "circular").unfold(-1, 2 * reach + 1, 1)  # [B, H, S, what may move here]
    w = (around @ torch.softmax(shifts, -1).flip(-1)[..., None])[..., 0]
    return torch.softmax((1 + F.softplus(sharp)) * w.clamp_min(torch.finfo(w.dtype).tiny).log(), -1)  # w^p / sum w^p


class NTM(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        slots: int = 16,  # rows of the memory
        d_slot: int | None = None,  # numbers in a row; None: d_model
        n_heads: int = 1,  # heads that read, and as many that write
    ) -> None:
        super().__init__()
        d_slot = d_slot or d_model
        check_positive(slots=slots, d_slot=d_slot, n_heads=n_heads)
        self.n_heads = n_heads
        bound = 1 / math.sqrt(d_model)
        self.W = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(4 * d_model, d_model).uniform_(-bound, bound))
        self.R = nn.Parameter(torch.empty(4 * d_model, n_heads * d_slot).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(4 * d_model))
        self.memory = nn.Parameter(torch.randn(slots, d_slot) / math.sqrt(d_slot))
        self.sizes = [2 * d_slot, 2 * (4 + 2 * SHIFT), d_slot, d_slot]  # of a pair of heads: keys, rest, erase, add
        self.heads = Linear(d_model, n_heads * sum(self.sizes))
        self.out = Linear(d_model + n_heads * d_slot, d_model)
        hint(self, "memory", decay=False, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Tape:
        slots, width = self.memory.shape
        h, c = (self.zeros(batch, self.W.shape[1]) for _ in "hc")
        weights = F.one_hot(self.zeros(batch, 2 * self.n_heads, dtype=torch.long), slots).to(self.memory)
        return Tape(h, c, self.memory.expand(batch, -1, -1), weights, self.zeros(batch, self.n_heads * width))

    def forward(
        self, x: Tensor, state: Tape | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tape | None]:
        heads = self.n_heads
        sizes = [heads * size for size in self.sizes]

        def cell(gates: Tensor, old: Tape) -> tuple[Tensor, Tape]:
            h, c = lstm_cell(gates + F.linear(old.read, self.R), self.U, old.h, old.c)
            told = F.linear(h, self.heads.weight, self.heads.bias).split(sizes, -1)
            key, rest = (each.unflatten(-1, (2 * heads, -1)) for each in told[:2])
            erase, add = (each.unflatten(-1, (heads, 1, -1)) for each in (torch.sigmoid(told[2]), told[3]))
            weights = address(old.memory, old.weights, key, rest)
            reading, writing = weights.split(heads, 1)
            memory = old.memory
            for w, e in zip(writing.unbind(1), erase.unbind(1), strict=True):
                memory = memory * (1 - w[..., None] * e)
            memory = memory + (writing[..., None] * add).sum(1)
            read = (reading @ memory).flatten(1)
            return torch.cat([h, read, weights.flatten(1)], -1), Tape(h, c, memory, weights, read)

        shown, state = scan(cell, linear(x, self.W, self.b), state or self.init_state(len(x)), lengths)
        y, weights = shown.split([self.out.in_features, 2 * heads * len(self.memory)], -1)
        record("weights", lambda: weights.unflatten(-1, (2 * heads, -1)))
        return self.out(y), state
