"""RWKV's channel mix: a feed-forward network that also sees the token before.

Recurrence (x' = mu x_t + (1 - mu) x_{t-1}, with a mu for each of k, r):
    y_t = s(W_r x') * W_v relu(W_k x')^2        without the gate s(...) in RWKV-7

Parallel form: the same on all tokens at once.

Cost: training and a decoded token O(d d_hidden); state d numbers.

Paper: Peng et al. 2023, section 3.1, eq. 17; without the gate, Peng et al. 2025, section 4.

Deviations: matrices start as the backbone starts them, not at zero. mu is the token's own share; RWKV-7 counts the
share of the one before, 1 - mu.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.ragged import previous
from longwave.parts.linear import Linear
from longwave.state import State


class Last(State):
    last: Float[Tensor, "B D"]


class ChannelMix(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        gated: bool = True,  # a gate made from the input, as in RWKV-4; False: none, as in RWKV-7
        d_hidden: int | None = None,  # None: 4 d_model
        depth: float = 0.0,  # how deep it stands, from 0 to 1: mixing starts accordingly
    ) -> None:
        super().__init__()
        hidden = 4 * d_model if d_hidden is None else d_hidden
        check_positive(d_hidden=hidden)
        start = (torch.arange(d_model) / d_model) ** ((1 - depth) ** (1 if gated else 4))
        self.mu = nn.Parameter(start.repeat(2 if gated else 1, 1))
        self.k = Linear(d_model, hidden, bias=False)
        self.r = Linear(d_model, d_model, bias=False) if gated else None
        self.out = Linear(hidden, d_model, bias=False)
        hint(self, "mu", decay=False, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Last:
        return Last(self.zeros(batch, self.mu.shape[1]))

    def forward(
        self, x: Tensor, state: Last | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Last | None]:
        before, last = previous(x, None if state is None else state.last, lengths)
        y = self.out(F.relu(self.k(torch.lerp(before, x, self.mu[0]))).square())
        if self.r is not None:
            y = torch.sigmoid(self.r(torch.lerp(before, x, self.mu[1]))) * y
        return y, None if last is None else Last(last)
