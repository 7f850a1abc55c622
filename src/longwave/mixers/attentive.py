"""An attentional interface: any recurrent mixer, which asks at every token for what it needs of the tokens before.

Recurrence (h_t the inner mixer's output, k_s and v_s projections of its inputs):
    a_t = softmax_{s <= t}(q_t . k_s / sqrt(d)), q_t = W h_t        r_t = sum_s a_ts v_s        y_t = tanh(C [r_t, h_t])

Parallel form: that of the inner mixer, then attention over all tokens at once.

Cost: that of the inner mixer, and O(T^2 d) in training; a decoded token O(t d); state 2 t d numbers more.

Paper: Olah and Carter 2016, "Attention and augmented recurrent neural networks", attentional interfaces; the form is
that of Luong, Pham and Manning 2015, eq. 5 and 7, their "general" score.

Deviations: what was read goes to the output, not back into the recurrence, so the inner mixer keeps its parallel form;
the score is scaled.
"""

import torch
from torch import Tensor

from longwave.errors import UserError, check_divides
from longwave.mixer import Mixer
from longwave.mixers import create
from longwave.ops.attention import Pattern, attention
from longwave.parts.cache import KV
from longwave.parts.linear import Linear
from longwave.spec import Spec
from longwave.state import State


class Focus(State):
    inner: State
    items: KV


class Attentive(Mixer):
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        mixer: Spec | str = "lstm",  # the causal mixer that asks
        n_heads: int = 1,  # questions at a time
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        self.n_heads = n_heads
        self.mixer = create(mixer, d_model)
        if not self.mixer.causal:
            raise UserError(f"attentive asks as it goes: {type(self.mixer).__name__} sees the whole sequence at once")
        self.q = Linear(d_model, d_model, bias=False)
        self.kv = Linear(d_model, 2 * d_model, bias=False)
        self.out = Linear(2 * d_model, d_model, bias=False)

    def init_state(self, batch: int, capacity: int | None = None) -> Focus:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        k, v = (self.zeros(batch, capacity or 0, self.n_heads, self.q.in_features // self.n_heads) for _ in "kv")
        items = KV(k, v, self.zeros(batch, dtype=torch.long), capacity is not None)
        return Focus(self.mixer.init_state(batch), items)

    def forward(
        self, x: Tensor, state: Focus | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Focus | None]:
        h, inner = self.mixer(x, None if state is None else state.inner, lengths)
        q = self.q(h).unflatten(-1, (self.n_heads, -1))
        k, v = self.kv(x).unflatten(-1, (2, self.n_heads, -1)).unbind(2)
        if state is None:
            read = attention(q, k, v)
        else:
            pos = state.items.n[:, None] + torch.arange(x.shape[1], device=x.device)
            items, k, v, at, aligned = state.items.extend(k, v, lengths)
            read = attention(q, k.to(q), v.to(q), Pattern(aligned=aligned), pos, at)
        y = torch.tanh(self.out(torch.cat([read.flatten(2), h], -1)))
        return y, None if state is None else Focus(inner, items)
