"""QRNN: gates from a short convolution of the input instead of the past state, so that only an average is sequential.

Recurrence (* a causal convolution with few taps):
    z = tanh(W * x), f = s(W' * x), o = s(W'' * x)
    c_t = f c_{t-1} + (1 - f) z        h_t = o c_t

Parallel form: the recurrence is linear in c and elementwise, so a scan of any grouping (see ops.scan).

Cost: training O(T k d^2) for k taps, all of it matrix products; a decoded token O(k d^2); state k d numbers.

Paper: Bradbury et al. 2017, "Quasi-recurrent neural networks", eq. 1-5; pooling by f, fo or ifo, section 2.

Deviations: no zoneout. Gates have biases.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.errors import check_positive
from longwave.mixer import Mixer
from longwave.ops.ragged import last_tokens
from longwave.ops.scan import linear_scan
from longwave.parts.linear import Linear
from longwave.state import State


class Pooled(State):
    window: Float[Tensor, "B M D"]
    c: Float[Tensor, "B D"]


class QRNN(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        d_conv: int = 2,  # taps of the convolution
        pooling: Literal["f", "fo", "ifo"] = "fo",  # gates: forget; with output; with an input gate instead of 1 - f
    ) -> None:
        super().__init__()
        check_positive(d_conv=d_conv)
        self.d_conv, self.pooling = d_conv, pooling
        self.gates = Linear(d_conv * d_model, (1 + len(pooling)) * d_model)

    def init_state(self, batch: int) -> Pooled:
        d = self.gates.in_features // self.d_conv
        return Pooled(self.zeros(batch, self.d_conv - 1, d), self.zeros(batch, d, wide=True))

    def forward(
        self, x: Tensor, state: Pooled | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Pooled | None]:
        held, T = self.d_conv - 1, x.shape[1]
        past = F.pad(x, (0, 0, held, 0)) if state is None else torch.cat([state.window, x], 1)
        taps = torch.cat([past[:, w : w + T] for w in range(self.d_conv)], -1)
        z, f, *rest = self.gates(taps).chunk(1 + len(self.pooling), -1)
        f = torch.sigmoid(f)
        take = torch.sigmoid(rest[0]) if self.pooling == "ifo" else 1 - f
        c, last = linear_scan(f, take * torch.tanh(z), None if state is None else state.c, lengths)
        c = c.to(x)
        y = c if self.pooling == "f" else torch.sigmoid(rest[-1]) * c
        if state is None or last is None:
            return y, None
        return y, Pooled(last_tokens(past, held, None if lengths is None else lengths + held), last)
