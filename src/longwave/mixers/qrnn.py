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
from jaxtyping import Float
from torch import Tensor

from longwave.mixer import Mixer
from longwave.ops.scan import linear_scan
from longwave.parts.convolution import Convolution
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
        self.pooling = pooling
        self.gates = Convolution(d_model, (1 + len(pooling)) * d_model, d_conv)

    def init_state(self, batch: int) -> Pooled:
        return Pooled(self.gates.window(batch), self.zeros(batch, self.gates.weight.shape[1], wide=True))

    def forward(
        self, x: Tensor, state: Pooled | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Pooled | None]:
        given, window = self.gates(x, None if state is None else state.window, lengths)
        z, f, *rest = given.chunk(1 + len(self.pooling), -1)
        f = torch.sigmoid(f)
        take = torch.sigmoid(rest[0]) if self.pooling == "ifo" else 1 - f
        c, last = linear_scan(f, take * torch.tanh(z), None if state is None else state.c, lengths)
        c = c.to(x)
        y = c if self.pooling == "f" else torch.sigmoid(rest[-1]) * c
        return y, None if window is None or last is None else Pooled(window, last)
