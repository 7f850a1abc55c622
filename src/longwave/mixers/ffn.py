"""Feed-forward network: the same small network on every token; it mixes nothing over time and remembers nothing.
Recurrence:
    y_t = W2 f(W1 x_t)        or, gated,        y_t = W2 (f(W_g x_t) * W1 x_t)

Parallel form: the same on all tokens at once.

Cost: training and a decoded token O(d d_hidden); state none.

Paper: Vaswani et al. 2017, section 3.3; gated variants, Shazeer 2020.

Deviations: none.
"""

import functools
from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.parts.dropout import dropout
from longwave.parts.linear import Linear
from longwave.state import Empty

Kind = Literal["swiglu", "geglu", "reglu", "glu", "relu", "gelu", "gelu_tanh", "silu", "relu2"]
Activation = Callable[[Tensor], Tensor]
GATES: dict[str, Activation] = {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu, "glu": F.sigmoid}
PLAIN: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),  # that of the GPTs
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
}


class FFN(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        kind: Kind = "swiglu",  # the nonlinearity
        d_hidden: int | None = None,  # None: 4 d_model, or 8/3 d_model where gated, for the same number of parameters
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of the hidden layer, in training
    ) -> None:
        super().__init__()
        gated = kind in GATES
        hidden = d_hidden or (-(-8 * d_model // 3) if gated else 4 * d_model)
        check_positive(d_hidden=hidden)
        self.kind, self.dropout = kind, dropout
        self.project = Linear(d_model, 2 * hidden if gated else hidden, bias=bias)
        self.out = Linear(hidden, d_model, bias=bias)
        hint(self.out, "weight", residual=True)

    def forward(
        self, x: Tensor, state: Empty | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Empty | None]:
        h = self.project(x)
        if self.kind in GATES:
            gate, h = h.chunk(2, -1)
            h = GATES[self.kind](gate) * h
        else:
            h = PLAIN[self.kind](h)
        y = self.out(dropout(h, self.dropout, self.training))
        return y, None if state is None else Empty(state.n + ends(x, lengths))
