"""What is made of the backbone's output: an answer and its loss. Heads obey the law: (h, state) -> (answer, state).

    tag         a class a token, [B, T, C]
    predict     numbers a token, [B, T, C]
    classify    a class a sequence, [B, C], from its last token or the mean of its tokens
    regress     numbers a sequence, [B, C], likewise

(The next-token head is the LanguageModel itself: it may share its weight with the embedding.)

With a state, a pooled answer is the one so far: after every piece, of all tokens seen.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import choose
from longwave.mixer import ends, valid
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import last_tokens, zero_pads
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.registry import check_options
from longwave.spec import Spec
from longwave.state import Empty, State


class Head(nn.Module):
    def init_state(self, batch: int) -> State:
        raise NotImplementedError

    def loss(self, h: Tensor, target: Tensor, lengths: Tensor | None = None, **how: Any) -> Tensor:
        raise NotImplementedError


class Tag(Head):
    def __init__(self, d_model: int, *, n_classes: int) -> None:
        super().__init__()
        self.out = Linear(d_model, n_classes)

    def init_state(self, batch: int) -> Empty:
        return Empty(torch.zeros(batch, dtype=torch.long, device=self.out.weight.device))

    def forward(self, h: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        return self.out(h), state

    def loss(self, h: Tensor, target: Int[Tensor, "B T"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        """The mean over tokens that are no pads and whose target is not -100."""
        target = target if lengths is None else zero_pads(target, lengths, fill=IGNORE)
        return cross_entropy(h, self.out.weight, target, self.out.bias, **how)


class Predict(Tag):
    def loss(self, h: Tensor, target: Float[Tensor, "B T C"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        """The mean squared error over tokens that are no pads."""
        answer = self.out(h)
        if lengths is not None:
            real = valid(h, lengths)
            answer, target = answer[real], target[real]
        return F.mse_loss(answer, target, **how)


class Pooled(State):
    h: Float[Tensor, "B D"]  # the last token, or the sum of tokens
    n: Int[Tensor, " B"]


class Pool(nn.Module):
    def __init__(self, d_model: int, *, pool: Literal["mean", "last"] = "mean") -> None:
        super().__init__()
        self.d_model, self.pool = d_model, pool

    def start(self, like: Tensor, batch: int) -> Pooled:
        wide = torch.promote_types(like.dtype, torch.float32)
        return Pooled(like.new_zeros(batch, self.d_model, dtype=wide), like.new_zeros(batch, dtype=torch.long))

    def forward(self, h: Tensor, state: Pooled | None, lengths: Tensor | None) -> tuple[Tensor, Pooled | None]:
        old = self.start(h, len(h)) if state is None else state
        n = old.n + ends(h, lengths)
        if self.pool == "mean":
            held = old.h + zero_pads(h, lengths).to(old.h).sum(1)
            pooled = held / n.clamp_min(1)[:, None]
        else:
            last = last_tokens(h, 1, None if lengths is None else lengths.clamp_min(1))[:, 0].to(old.h)
            held = pooled = last if lengths is None else torch.where((lengths > 0)[:, None], last, old.h)
        return pooled.to(h), None if state is None else Pooled(held, n)


class Classify(Head):
    def __init__(
        self, d_model: int, *, n_classes: int, pool: Literal["mean", "last"] = "mean", norm: str | Spec = "none"
    ) -> None:
        super().__init__()
        self.pool = Pool(d_model, pool=pool)
        self.norm = make_norm(norm, d_model)
        self.out = Linear(d_model, n_classes)

    def init_state(self, batch: int) -> Pooled:
        return self.pool.start(self.out.weight, batch)

    def forward(
        self, h: Tensor, state: Pooled | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Pooled | None]:
        pooled, state = self.pool(h, state, lengths)
        return self.out(self.norm(pooled)), state

    def loss(self, h: Tensor, target: Int[Tensor, " B"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        pooled, _ = self.pool(h, None, lengths)
        return cross_entropy(self.norm(pooled), self.out.weight, target, self.out.bias, **how)


class Regress(Classify):
    def loss(self, h: Tensor, target: Float[Tensor, "B C"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        """Mean squared error."""
        return F.mse_loss(self(h, None, lengths)[0], target, **how)


HEADS: dict[str, type[Head]] = {"tag": Tag, "classify": Classify, "regress": Regress, "predict": Predict}


def make_head(spec: Spec, d_model: int) -> Head:
    cls = choose("head", spec.name, HEADS)
    check_options(f"head {spec.name!r}", cls, spec.options)
    return cls(d_model, **spec.options)
