"""Long convolution: a filter as long as the sequence, its taps learned as they are, small ones squashed to zero.

Recurrence (the state is the past, or better: sums already made for outputs to come):
    k = sign(h) max(|h| - c, 0)        y_t = sum_s k_s x_{t-s} + D x_t        out = GLU(W gelu(y))

Parallel form: the same sums by the FFT.

Cost: training O(T d (log T + d)); N decoded tokens O(N d log^2 N) together; state 3 t d numbers.

Paper: Fu et al. 2023, "Simple hardware-efficient long convolutions for sequence modeling", section 3.1 and Algorithm 1
(squash and smooth).

Deviations: filters start as noise under exponential windows of many lengths, as long as Hyena's; they end after
`longest` taps.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.fftconv import Past, long_conv
from longwave.ops.glu_linear import glu_linear
from longwave.parts.filters import fading
from longwave.parts.linear import Linear


class LongConv(Mixer):
    work = "fft"
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        longest: int = 1024,  # taps of a filter
        squash: float = 0.003,  # what is taken off every tap's size
        smooth: int | None = None,  # taps on either side with which a tap is averaged; None: no averaging
    ) -> None:
        super().__init__()
        check_positive(longest=longest)
        if squash < 0:
            raise UserError(f"squash is taken off the size of every tap: it cannot be negative, got {squash}")
        self.squash, self.smooth = squash, smooth
        window = torch.exp(-torch.arange(longest)[:, None] / longest * fading(d_model))
        self.h = nn.Parameter(F.normalize(torch.randn(longest, d_model) * window, dim=0))
        self.D = nn.Parameter(torch.randn(d_model))
        self.out = Linear(d_model, 2 * d_model)
        hint(self, "h", decay=False, lr=5e-4, own_init=True)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> Past:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        u, n = self.zeros(batch, capacity or 0, len(self.D)), self.zeros(batch, dtype=torch.long)
        return Past(u, n, fixed=capacity is not None)

    def forward(
        self, x: Tensor, state: Past | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Past | None]:
        k = self.kernel()
        y, past = long_conv(x, lambda n: F.pad(k[:n], (0, 0, 0, max(0, n - len(k)))), state, lengths)
        return glu_linear(y + self.D * x, self.out.weight, self.out.bias), past

    def kernel(self) -> Float[Tensor, "L D"]:
        h: Tensor = self.h
        if self.smooth:
            h = F.avg_pool1d(h.T, 2 * self.smooth + 1, stride=1, padding=self.smooth).T
        return h.sign() * F.relu(h.abs() - self.squash)
