"""Temporal convolutional network: residual blocks of causal convolutions whose dilation doubles from block to block.

Recurrence (the state is the window of every convolution; block l has dilation 2^l):
    h_t = relu(W x_t, x_{t-2^l}, ...)        u_t = relu(V h_t, h_{t-2^l}, ...)        y_t = relu(x_t + u_t)

Parallel form: the same at all steps at once, block after block.

Cost: training O(n k T d^2) for n blocks of k taps; a decoded token O(n k d^2); state 2 (k - 1) (2^n - 1) d numbers. An
output sees 1 + 2 (k - 1) (2^n - 1) steps.

Paper: Bai, Kolter and Koltun 2018, "An empirical evaluation of generic convolutional and recurrent networks for
sequence modeling", section 3, fig. 1.

Deviations: none; all blocks are of the model's width, so the residual needs no map. Dropout takes whole channels in
the paper, single numbers here: a channel dropped for a whole sequence would depend on where the sequence is cut.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.mixer import Mixer
from longwave.parts.convolution import Convolution, Windows, start


class TCN(Mixer):
    growth = "window"

    def __init__(
        self,
        d_model: int,
        *,
        levels: int = 4,  # residual blocks, of dilation 1, 2, 4 ...
        taps: int = 3,  # of each convolution
        dropout: float = 0.0,  # after each convolution, in training
    ) -> None:
        super().__init__()
        check_positive(levels=levels)
        self.dropout = dropout
        self.convs = nn.ModuleList(
            Convolution(d_model, d_model, taps, dilation=2 ** (i // 2), gain=True) for i in range(2 * levels)
        )

    def init_state(self, batch: int) -> Windows:
        return start(self.convs, batch)

    def forward(
        self, x: Tensor, state: Windows | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Windows | None]:
        old = [None] * len(self.convs) if state is None else state.windows
        new, h = [], x
        for i, conv in enumerate(self.convs):
            h, window = conv(h, old[i], lengths)
            h = F.dropout(F.relu(h), self.dropout, self.training)
            if i % 2:
                x = h = F.relu(x + h)
            new.append(window)
        return x, None if state is None else Windows(tuple(new))
