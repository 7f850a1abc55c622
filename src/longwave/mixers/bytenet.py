"""ByteNet: residual blocks that narrow, convolve with a doubling dilation, and widen again.

Recurrence (the state is the window of every dilated convolution; block l has dilation 2^l):
    a_t = W1 relu(norm(x_t))        b_t = W2 relu(norm(a)) at t, t - 2^l, ...        y_t = x_t + W3 relu(norm(b_t))

Parallel form: the same at all steps at once, block after block.

Cost: training O(n T d^2) for n blocks; a decoded token O(n d^2); state (k - 1) (2^n - 1) d / 2 numbers for k taps. An
output sees 1 + (k - 1) (2^n - 1) steps.

Paper: Kalchbrenner et al. 2016, "Neural machine translation in linear time", section 3, fig. 3 left (the block with
relu); the decoder is causal, the encoder centred.

Deviations: none in the block; a second set of dilations is a second mixer. The decoder's stacking on the encoder is
the model's matter.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.parts.convolution import Convolution, Windows
from longwave.parts.linear import Linear
from longwave.parts.norm import LayerNorm


class Block(nn.Module):
    def __init__(self, d_model: int, taps: int, dilation: int, *, causal: bool) -> None:
        super().__init__()
        narrow = -(-d_model // 2)
        self.norms = nn.ModuleList(LayerNorm(d) for d in (d_model, narrow, narrow))
        self.narrow, self.out = Linear(d_model, narrow), Linear(narrow, d_model)
        self.conv = Convolution(narrow, narrow, taps, dilation=dilation, causal=causal)
        hint(self.out, "weight", residual=True)

    def forward(
        self, x: Tensor, window: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        h = self.narrow(F.relu(self.norms[0](x)))
        h, window = self.conv(F.relu(self.norms[1](h)), window, lengths)
        return x + self.out(F.relu(self.norms[2](h))), window


class ByteNet(Mixer):
    growth = "window"

    def __init__(
        self,
        d_model: int,
        *,
        levels: int = 5,  # residual blocks, of dilation 1, 2, 4 ...
        taps: int = 3,  # of each dilated convolution
        causal: bool = True,  # False: centred, as in the encoder
    ) -> None:
        super().__init__()
        check_positive(levels=levels)
        self.causal = causal
        self.blocks = nn.ModuleList(Block(d_model, taps, 2**i, causal=causal) for i in range(levels))

    def init_state(self, batch: int) -> Windows:
        return Windows(tuple(block.conv.window(batch) for block in self.blocks))  # type: ignore[operator,union-attr]

    def forward(
        self, x: Tensor, state: Windows | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Windows | None]:
        old = [None] * len(self.blocks) if state is None else state.windows
        new = []
        for block, window in zip(self.blocks, old, strict=True):
            x, window = block(x, window, lengths)
            new.append(window)
        return x, None if state is None else Windows(tuple(new))
