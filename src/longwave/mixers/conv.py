"""Convolution over time: an output is one linear map of the inputs a few fixed steps around it, order built in.

Recurrence (the state is the window of the last (taps - 1) dilation inputs):
    y_t = b + sum_w W_w x_{t - w dilation}        w = 0 ... taps - 1

Parallel form: the same at all steps at once, as one product of matrices.

Cost: training O(taps T d^2); a decoded token O(taps d^2); state (taps - 1) dilation d numbers. An output sees
1 + (taps - 1) dilation steps; n layers of doubling dilation see 1 + (taps - 1) (2^n - 1).

Paper: LeCun and Bengio 1995, "Convolutional networks for images, speech, and time series"; dilation, van den Oord et
al. 2016, section 2.1; compared with attention in Vaswani et al. 2017, table 1.

Deviations: none; taps lie behind (causal) or around (centred) each row's own steps, never on padding.
"""

from torch import Tensor

from longwave.mixer import Mixer
from longwave.parts.convolution import Convolution, Windows


class Conv(Mixer):
    growth = "window"

    def __init__(
        self,
        d_model: int,
        *,
        taps: int = 4,  # steps that an output sees
        dilation: int = 1,  # steps from one of them to the next
        causal: bool = True,  # False: centred, half of the taps look ahead
    ) -> None:
        super().__init__()
        self.causal = causal
        self.conv = Convolution(d_model, d_model, taps, dilation=dilation, causal=causal)

    def init_state(self, batch: int) -> Windows:
        return Windows((self.conv.window(batch),))

    def forward(
        self, x: Tensor, state: Windows | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Windows | None]:
        y, window = self.conv(x, None if state is None else state.windows[0], lengths)
        return y, None if window is None else Windows((window,))
