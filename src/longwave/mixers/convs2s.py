"""Convolutional sequence to sequence: layers of convolutions gated by half of their own output, beside a residual.

Recurrence (the state is the window of every convolution):
    a, b = W x_t, x_{t-1}, ...        y_t = (x_t + a s(b)) / sqrt(2)

Parallel form: the same at all steps at once, layer after layer.

Cost: training O(n k T d^2) for n layers of k taps; a decoded token O(n k d^2); state n (k - 1) d numbers. An output
sees 1 + n (k - 1) steps.

Paper: Gehring et al. 2017, "Convolutional sequence to sequence learning", section 3.2 (gates, residuals) and 3.4, 3.5
(the factor sqrt(1/2), the initial weights, weight normalisation); the decoder is causal, the encoder centred.

Deviations: none in the layers. Attention to the encoder is `cross`, the embedding of positions `positions`.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.mixer import Mixer
from longwave.parts.convolution import Convolution, Windows, start


class ConvS2S(Mixer):
    growth = "window"

    def __init__(
        self,
        d_model: int,
        *,
        levels: int = 4,  # layers
        taps: int = 3,  # of each convolution
        causal: bool = True,  # False: centred, as in the encoder
        dropout: float = 0.0,  # of the input of each convolution, in training
    ) -> None:
        super().__init__()
        check_positive(levels=levels)
        self.causal, self.dropout = causal, dropout
        self.convs = nn.ModuleList(
            Convolution(d_model, 2 * d_model, taps, causal=causal, gain=True) for _ in range(levels)
        )
        for conv in self.convs:  # so that variances stay, through gates that are half open
            nn.init.normal_(conv.weight, std=math.sqrt(4 * (1 - dropout) / (taps * d_model)))  # type: ignore[arg-type]
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            conv.gain.data = conv.weight.detach().norm(dim=(1, 2), keepdim=True)  # type: ignore[operator]

    def init_state(self, batch: int) -> Windows:
        return start(self.convs, batch)

    def forward(
        self, x: Tensor, state: Windows | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Windows | None]:
        old = [None] * len(self.convs) if state is None else state.windows
        new = []
        for conv, window in zip(self.convs, old, strict=True):
            h, window = conv(F.dropout(x, self.dropout, self.training), window, lengths)
            x = (x + F.glu(h, -1)) * math.sqrt(0.5)
            new.append(window)
        return x, None if state is None else Windows(tuple(new))
