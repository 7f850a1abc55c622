"""minLSTM: an LSTM without its inner products; what its two gates let through is shared out, so that nothing grows.
Recurrence:
    f, i = s(W_f x_t), s(W_i x_t)        h_t = f / (f + i) h_{t-1} + i / (f + i) g(W_h x_t)        y = W h
    g(a) = a + 1/2 where a >= 0, else s(a)

Parallel form: that of minGRU, whose gate it is: i / (f + i) = s(log i - log f) (see ops.min_gru).

Cost: training and a decoded token O(E d^2); state E d numbers.

Paper: Feng et al. 2024, "Were RNNs all we needed?", section 3.2 and appendix B (the positive g).

Deviations: an output projection always, where the paper has one only for E > 1; the state starts at 0, not at g(0).
"""

import torch.nn.functional as F
from torch import Tensor

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.mingru import Hidden
from longwave.ops.min_gru import min_gru
from longwave.parts.linear import Linear


class MinLSTM(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        expand: int = 2,  # inner channels E, in units of d_model
    ) -> None:
        super().__init__()
        check_positive(expand=expand)
        self.project = Linear(d_model, 3 * expand * d_model)
        self.out = Linear(expand * d_model, d_model)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, self.out.in_features, wide=True))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        f, i, candidate = self.project(x).chunk(3, -1)
        gate = F.logsigmoid(i) - F.logsigmoid(f)
        y, h = min_gru(gate, candidate, None if state is None else state.h, lengths)
        return self.out(y), None if h is None else Hidden(h)
