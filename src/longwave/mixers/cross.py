"""Cross attention: a decoder's token looks up the encoder's output. The memory is the state.

Recurrence:
    y_t = sum_s softmax_s(q_t . k_s / sqrt(d)) v_s        k, v projected once from the memory; the state never changes

Parallel form:
    Y = softmax(Q K^T / sqrt(d)) V

Cost: training O(T S d) for a memory of S tokens; a decoded token O(S d); state 2 S d numbers, whatever T.

Paper: Vaswani et al. 2017, section 3.2.3; the idea, Bahdanau et al. 2015.

Deviations: none.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import UserError, check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.state import State


class Memory(State):
    k: Float[Tensor, "B S H K"]
    v: Float[Tensor, "B S H V"]
    n: Int[Tensor, " B"]


class Cross(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        d_memory: int | None = None,  # width of the encoder's output; None: d_model
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        self.n_heads, self.dropout, self.d_memory = n_heads, dropout, d_memory or d_model
        self.q = Linear(d_model, d_model, bias=bias)
        self.kv = Linear(self.d_memory, 2 * d_model, bias=bias)
        self.out = Linear(d_model, d_model, bias=bias)
        hint(self.out, "weight", residual=True)

    def init_state(  # type: ignore[override]
        self, batch: int, memory: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"] | None = None
    ) -> Memory:
        """Projects the encoder's output, once a source; `lengths` are the sources'."""
        if len(memory) != batch:
            raise UserError(f"a batch of {batch} needs {batch} memories, got {len(memory)}")
        k, v = self.kv(zero_pads(memory, lengths)).unflatten(-1, (2, self.n_heads, -1)).unbind(2)
        n = torch.full((batch,), memory.shape[1], device=memory.device) if lengths is None else lengths
        return Memory(k, v, n)

    def forward(
        self, x: Tensor, state: Memory | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Memory | None]:
        if state is None:
            raise UserError("Cross needs the encoder's memory: pass init_state(batch, memory, lengths) as its state")
        q = self.q(x).unflatten(-1, (self.n_heads, -1))
        at = torch.arange(state.k.shape[1], device=x.device)
        seen = torch.where(at < state.n[:, None], at, -1)
        y = attention(
            q,
            state.k.to(q),
            state.v.to(q),
            Pattern(causal=False),
            k_pos=seen,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.out(y.flatten(2)), state
