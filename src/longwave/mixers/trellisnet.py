"""Trellis network: a convolution of two taps, repeated with the same weights, that reads the input anew at each layer.

Recurrence (layers i = 0 ... n - 1, all with the same W and U, from h = c = 0; the state is each layer's last h and c):
    f, i, g, o = W (x_{t-1}, x_t) + U (h_{t-1}, h_t) + b
    c'_t = s(f) c_{t-1} + s(i) tanh(g)        h'_t = s(o) tanh(c'_t)

Parallel form: the same at all steps at once, layer after layer; W x is one product for all layers.

Cost: training O(n T d^2) for n layers; a decoded token O(n d^2); state (2 n - 1) d numbers. An output sees n + 1 steps.

Paper: Bai, Kolter and Koltun 2019, "Trellis networks for sequence modeling", eq. 1-2, with the LSTM's gates as
activation. By its theorem 1, with no weight on x_{t-1} and h_t it is the LSTM, truncated to the last n steps.

Deviations: no dropout between times and no weight normalisation, which are its regularisers; the dilation is 1.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear import linear
from longwave.ops.ragged import with_past
from longwave.parts.convolution import Convolution
from longwave.state import State


class Lasts(State):
    x: Float[Tensor, "B 1 D"]
    layers: tuple[Float[Tensor, "B 1 D2"], ...]  # h and c that each layer read last


class TrellisNet(Mixer):
    growth = "window"

    def __init__(
        self,
        d_model: int,
        *,
        depth: int = 8,  # layers, which share their weights
    ) -> None:
        super().__init__()
        check_positive(depth=depth - 1)
        self.depth = depth
        self.inject = Convolution(d_model, 4 * d_model, 2)
        bound = 1 / math.sqrt(2 * d_model)
        self.U = nn.Parameter(torch.empty(4 * d_model, 2 * d_model).uniform_(-bound, bound))
        hint(self, "U", own_init=True)

    def init_state(self, batch: int) -> Lasts:
        d = self.U.shape[1] // 2
        return Lasts(self.zeros(batch, 1, d), tuple(self.zeros(batch, 1, 2 * d) for _ in range(self.depth - 1)))

    def forward(
        self, x: Tensor, state: Lasts | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Lasts | None]:
        read, window = self.inject(x, None if state is None else state.x, lengths)
        f, i, g, o = read.chunk(4, -1)
        c = torch.sigmoid(i) * torch.tanh(g)  # the first layer reads zeros
        h = torch.sigmoid(o) * torch.tanh(c)
        lasts: list[Tensor] = []
        for layer in range(self.depth - 1):
            seen, last = with_past(torch.cat([h, c], -1), 1, None if state is None else state.layers[layer], lengths)
            hs, cs = seen.chunk(2, -1)
            gates = read + linear(torch.cat([hs[:, :-1], hs[:, 1:]], -1), self.U)
            f, i, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * cs[:, :-1] + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            lasts.append(last)  # type: ignore[arg-type]
        return h, None if window is None else Lasts(window, tuple(lasts))
