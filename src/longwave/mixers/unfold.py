"""Dynamic unfolding: a decoder that stands on its encoder, column on column. The memory is the state.

Recurrence (n tokens seen before, a memory m of S columns):
    y_t = W m_{n + t}        0 beyond the memory's end

Parallel form: the same for all columns at once.

Cost: training O(T d^2); a decoded token O(d), the product being made once a source; state S d numbers, whatever T.

Paper: Kalchbrenner et al. 2016, "Neural machine translation in linear time", sections 3.1 and 3.2.

Deviations: the source is not lengthened to 1.2 times its own; behind its end the decoder stands on zeros.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import UserError
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.state import State


class Columns(State):
    m: Float[Tensor, "B S D"]
    n: Int[Tensor, " B"]


class Unfold(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        d_memory: int | None = None,  # width of the encoder's output; None: d_model
    ) -> None:
        super().__init__()
        self.d_memory = d_memory or d_model
        self.out = Linear(self.d_memory, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(  # type: ignore[override]
        self, batch: int, memory: Float[Tensor, "B S M"], lengths: Int[Tensor, " B"] | None = None
    ) -> Columns:
        if len(memory) != batch:
            raise UserError(f"a batch of {batch} needs {batch} memories, got {len(memory)}")
        return Columns(zero_pads(self.out(memory), lengths), self.zeros(batch, dtype=torch.long))

    def forward(
        self, x: Tensor, state: Columns | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Columns | None]:
        if state is None:
            raise UserError("Unfold needs the encoder's memory: pass init_state(batch, memory, lengths) as its state")
        at = state.n[:, None] + torch.arange(x.shape[1], device=x.device)
        there, last = at < state.m.shape[1], max(0, state.m.shape[1] - 1)
        y = state.m.gather(1, at.clamp_max(last)[..., None].expand(-1, -1, state.m.shape[2]))
        return torch.where(there[..., None], y, 0), Columns(state.m, state.n + ends(x, lengths))
