"""FNet: the discrete Fourier transform over time and channels in place of attention; nothing to learn.

Recurrence: none; every output needs the whole sequence.

Parallel form:
    Y = Re(F_time X F_channels)

Cost: training O(T d (log T + log d)); no decoding, no state.

Paper: Lee-Thorp et al. 2021, section 3.2, eq. 3.

Deviations: each row is transformed over its own length, so that padding and batch mates cannot be heard (the
published code mixes pads in).
"""

import torch
from torch import Tensor

from longwave.mixer import Mixer


class FNet(Mixer):
    work = "fft"
    causal = False

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        wide = torch.promote_types(x.dtype, torch.float32)
        x_wide = x.to(wide)
        if lengths is None:
            return torch.fft.fft2(x_wide, dim=(1, 2)).real.to(x.dtype), None
        y = torch.zeros_like(x_wide)
        for length in set(lengths.tolist()) - {0}:
            rows = torch.nonzero(lengths == length)[:, 0]
            mixed = torch.fft.fft2(x_wide[rows, :length], dim=(1, 2)).real
            y = y.index_put((rows[:, None], torch.arange(length, device=x.device)[None]), mixed)
        return y.to(x.dtype), None
