"""minGRU: a GRU without its inner products: gate and candidate see the input only, so training is a scan.
Recurrence:
    z = s(W_z x_t)        h_t = (1 - z) h_{t-1} + z g(W_h x_t)        y = W h
    g(a) = a + 1/2 where a >= 0, else s(a)

Parallel form: the recurrence is linear in h, so a scan of any grouping (see ops.min_gru).

Cost: training and a decoded token O(E d^2); state E d numbers.

Paper: Feng et al. 2024, "Were RNNs all we needed?", section 3.1 and appendix B (the positive g).

Deviations: an output projection always, where the paper has one only for E > 1; the state starts at 0, not at g(0).
"""

from jaxtyping import Float
from torch import Tensor

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.min_gru import min_gru
from longwave.parts.linear import Linear
from longwave.state import State


class Hidden(State):
    h: Float[Tensor, "B D"]


class MinGRU(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        expand: int = 2,  # inner channels E, in units of d_model
    ) -> None:
        super().__init__()
        check_positive(expand=expand)
        self.project = Linear(d_model, 2 * expand * d_model)
        self.out = Linear(expand * d_model, d_model)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, self.out.in_features, wide=True))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        gate, candidate = self.project(x).chunk(2, -1)
        y, h = min_gru(gate, candidate, None if state is None else state.h, lengths)
        return self.out(y), None if h is None else Hidden(h)
