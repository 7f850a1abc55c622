"""What is made of the backbone's output: an answer and its loss. Heads obey the law: (h, state) -> (answer, state).

    tag         a class a token, [B, T, C]
    predict     numbers a token, [B, T, C]
    classify    a class a sequence, [B, C], from its first or last token or the mean of its tokens
    regress     numbers a sequence, [B, C], likewise
    pair        a class for two sequences, each read alone: x is [B, 2, T], the answer [B, C]
    masked      what a hidden token was, [B, T, P]: a dense layer, then the matrix that embeds tokens
    pretrain    that, and whether the second of two sentences follows the first, [B, 2]: what BERT learns
    pooled      the vector that "classify" looks at, [B, D]
    none        the hidden states as they are, [B, T, D]

(The next-token head is the LanguageModel itself: it may share its weight with the embedding.)

With a state, a pooled answer is the one so far: after every piece, of all tokens seen.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, choose
from longwave.mixer import ends, valid
from longwave.mixers.ffn import PLAIN
from longwave.ops.linear import linear
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import last_tokens, zero_pads
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.registry import check_options
from longwave.spec import Spec
from longwave.state import Empty, State

LOW = -1e30  # a score below all others
ACTIVATIONS = {**PLAIN, "tanh": torch.tanh}


Pooling = Literal["mean", "last", "first"]
Pools = Pooling | Literal["attention"]


class Head(nn.Module):
    tied = False  # True: it is called with the matrix that embeds tokens, `embedded`, too
    pairs = False  # True: rows 2i and 2i + 1 belong together

    def init_state(self, batch: int) -> State:
        like = next(self.parameters(), torch.empty(0))
        return Empty(torch.zeros(batch, dtype=torch.long, device=like.device))

    def loss(self, h: Tensor, target: Any, lengths: Tensor | None = None, **how: Any) -> Tensor:
        raise UserError(f"the head {type(self).__name__.lower()!r} has no loss: give the model one that answers")


class Hidden(Head):
    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, h: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        return h, state


class Dense(nn.Module):
    """norm(f(W x))"""

    def __init__(self, d_model: int, *, act: str, norm: str | Spec = "none", bias: bool = True) -> None:
        super().__init__()
        self.linear = Linear(d_model, d_model, bias=bias)
        self.act = act
        choose("activation", act, ACTIVATIONS)
        self.norm = make_norm(norm, d_model)

    def forward(self, h: Float[Tensor, "*n D"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "*n D"]:
        return self.norm(ACTIVATIONS[self.act](self.linear(h)), None, lengths)


class Tag(Head):
    def __init__(self, d_model: int, *, n_classes: int, bias: bool = True) -> None:
        super().__init__()
        self.out = Linear(d_model, n_classes, bias=bias)

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


class Masked(Head):
    """Devlin et al. 2019, section 3.1, and the published code."""

    def __init__(
        self,
        d_model: int,
        *,
        vocab: int,  # tokens there are
        act: str = "gelu",  # of the dense layer
        norm: str | Spec = "layer",  # behind it
        bias: bool = True,  # in it; each token has one of its own anyway
        tied: bool = True,  # False: an output matrix of its own
    ) -> None:
        super().__init__()
        self.tied = tied
        self.dense = Dense(d_model, act=act, norm=norm, bias=bias)
        self.out = None if tied else Linear(d_model, vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(
        self, h: Tensor, state: Any = None, lengths: Tensor | None = None, embedded: Tensor | None = None
    ) -> tuple[Any, Any]:
        return linear(self.dense(h, lengths), self._matrix(embedded), self.bias), state

    def loss(
        self, h: Tensor, target: Any, lengths: Tensor | None = None, embedded: Tensor | None = None,
        *, reduction: str = "mean", **how: Any,
    ) -> Tensor:  # fmt: skip
        """The mean over tokens whose target is not -100; for no other are there logits."""
        target = target if lengths is None else zero_pads(target, lengths, fill=IGNORE)
        asked = target != IGNORE
        matrix, each = self._matrix(embedded), "none" if reduction == "none" else "sum"
        lost = cross_entropy(self.dense(h[asked]), matrix, target[asked], self.bias, reduction=each, **how)
        if reduction == "none":
            return torch.zeros(target.shape, dtype=lost.dtype, device=lost.device).masked_scatter(asked, lost)
        return lost / asked.sum().clamp_min(1) if reduction == "mean" else lost

    def _matrix(self, embedded: Tensor | None) -> Tensor:
        if self.out is not None:
            return self.out.weight
        if embedded is None:
            raise UserError("a tied head needs a model of tokens: it shares the matrix that embeds them")
        return embedded


class Pretrain(Masked):
    """Answers and targets are pairs: of the tokens, and of the two sentences."""

    def __init__(
        self,
        d_model: int,
        *,
        vocab: int,  # tokens there are
        act: str = "gelu",  # of the dense layer
        norm: str | Spec = "layer",  # behind it
    ) -> None:
        super().__init__(d_model, vocab=vocab, act=act, norm=norm)
        self.pool = Pool(d_model, pool="first")
        self.dense_pair = Dense(d_model, act="tanh")
        self.pair = Linear(d_model, 2)

    def init_state(self, batch: int) -> State:
        return self.pool.start(self.bias, batch)

    def forward(
        self, h: Tensor, state: Any = None, lengths: Tensor | None = None, embedded: Tensor | None = None
    ) -> tuple[tuple[Tensor, Tensor], Any]:
        tokens, _ = super().forward(h, None, lengths, embedded)
        pooled, state = self.pool(h, state, lengths)
        return (tokens, self.pair(self.dense_pair(pooled))), state

    def loss(
        self, h: Tensor, target: tuple[Int[Tensor, "B T"], Int[Tensor, " B"]], lengths: Tensor | None = None,
        embedded: Tensor | None = None, *, reduction: str = "mean", **how: Any,
    ) -> Tensor:  # fmt: skip
        """The mean over hidden tokens and that over pairs, added; "sum": this times the number of hidden tokens."""
        tokens, pair = target
        if reduction == "none":
            raise UserError("tokens and pairs have no loss each: reduction is 'mean' or 'sum'")
        hidden = super().loss(h, tokens, lengths, embedded, reduction=reduction, **how)
        count = (tokens if lengths is None else zero_pads(tokens, lengths, fill=IGNORE)).ne(IGNORE).sum()
        pooled, _ = self.pool(h, None, lengths)
        pairs = cross_entropy(self.dense_pair(pooled), self.pair.weight, pair, self.pair.bias)
        return hidden + pairs * (count if reduction == "sum" else 1)


class PooledState(State):
    h: Float[Tensor, "B D"]  # the first token, the last, or the sum of tokens
    n: Int[Tensor, " B"]


class Pool(nn.Module):
    def __init__(self, d_model: int, *, pool: Pooling = "mean") -> None:
        super().__init__()
        self.d_model, self.pool = d_model, pool

    def start(self, like: Tensor, batch: int) -> PooledState:
        wide = torch.promote_types(like.dtype, torch.float32)
        return PooledState(like.new_zeros(batch, self.d_model, dtype=wide), like.new_zeros(batch, dtype=torch.long))

    def forward(
        self, h: Tensor, state: PooledState | None, lengths: Tensor | None
    ) -> tuple[Tensor, PooledState | None]:
        old = self.start(h, len(h)) if state is None else state
        n = old.n + ends(h, lengths)
        if self.pool == "mean":
            held = old.h + zero_pads(h, lengths).to(old.h).sum(1)
            pooled = held / n.clamp_min(1)[:, None]
        else:
            if self.pool == "first":
                one, kept = h[:, 0].to(old.h), (old.n > 0) | (n == 0)
            else:
                ends_at = None if lengths is None else lengths.clamp_min(1)
                one, kept = last_tokens(h, 1, ends_at)[:, 0].to(old.h), n == old.n
            held = pooled = torch.where(kept[:, None], old.h, one)
        return pooled.to(h), None if state is None else PooledState(held, n)


class Attended(State):
    h: Float[Tensor, "B D"]  # the sum of tokens, each times exp(its score - peak)
    weight: Float[Tensor, " B"]  # and of these factors
    peak: Float[Tensor, " B"]  # the largest score


class AttentivePool(nn.Module):
    """The mean of tokens weighted by softmax(w h), w learned: Lin et al. 2017, eq. 5, with one linear score."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.score = Linear(d_model, 1, bias=False)

    def start(self, like: Tensor, batch: int) -> Attended:
        kind = torch.promote_types(like.dtype, torch.float32)
        zeros = like.new_zeros(batch, dtype=kind)
        return Attended(like.new_zeros(batch, self.score.in_features, dtype=kind), zeros, torch.full_like(zeros, LOW))

    def forward(self, h: Tensor, state: Attended | None, lengths: Tensor | None) -> tuple[Tensor, Attended | None]:
        old = self.start(h, len(h)) if state is None else state
        h_wide, scores = zero_pads(h, lengths).to(old.h), self.score(h)[..., 0].to(old.h)
        if lengths is not None:
            scores = scores.masked_fill(~valid(h, lengths), LOW)
        peak = torch.maximum(old.peak, scores.amax(1)).detach()
        factors, kept = torch.exp(scores - peak[:, None]), torch.exp(old.peak - peak)
        if lengths is not None:
            factors = zero_pads(factors, lengths)
        held = torch.einsum("bt,btd->bd", factors, h_wide) + kept[:, None] * old.h
        weight = factors.sum(1) + kept * old.weight
        pooled = held / torch.where(weight > 0, weight, 1)[:, None]
        return pooled.to(h), None if state is None else Attended(held, weight, peak)


class Pooled(Head):
    """With a dense layer and tanh this is BERT's pooler; without, it is nothing but the pooling."""

    def __init__(
        self,
        d_model: int,
        *,
        pool: Pools = "mean",  # the vector that stands for a sequence
        dense: bool = False,  # a layer above it
        act: str = "tanh",  # that layer's
        norm: str | Spec = "none",  # behind that, or behind pooling
        bias: bool = True,  # in the layer
    ) -> None:
        super().__init__()
        self.pool = AttentivePool(d_model) if pool == "attention" else Pool(d_model, pool=pool)
        self.dense = Dense(d_model, act=act, norm=norm, bias=bias) if dense else None
        self.norm = make_norm("none" if dense else norm, d_model)

    def init_state(self, batch: int) -> State:
        return self.pool.start(next(self.parameters(), torch.empty(0)), batch)

    def forward(
        self, h: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        pooled, state = self.pool(h, state, lengths)
        return self.norm(pooled) if self.dense is None else self.dense(pooled), state


class Classify(Pooled):
    def __init__(
        self,
        d_model: int,
        *,
        n_classes: int,  # what there is to choose from
        pool: Pools = "mean",  # the vector that stands for a sequence
        dense: bool = False,  # a layer above it
        act: str = "tanh",  # that layer's
        norm: str | Spec = "none",  # behind that, or behind pooling
        bias: bool = True,  # in the layer
        dropout: float = 0.0,  # before the last map, in training
    ) -> None:
        super().__init__(d_model, pool=pool, dense=dense, act=act, norm=norm, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(d_model, n_classes)

    def forward(
        self, h: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        pooled, state = super().forward(h, state, lengths)
        return self.out(self.dropout(pooled)), state

    def loss(self, h: Tensor, target: Int[Tensor, " B"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        pooled, _ = super().forward(h, None, lengths)
        return cross_entropy(self.dropout(pooled), self.out.weight, target, self.out.bias, **how)


class Regress(Classify):
    def loss(self, h: Tensor, target: Float[Tensor, "B C"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        """Mean squared error."""
        return F.mse_loss(self(h, None, lengths)[0], target, **how)


class Pair(Pooled):
    """Of the vectors u and v of two sequences: a dense layer on [u, v, u * v, u - v], then the classes (Tay et al.
    2021, section 2.2.3, and the published code)."""

    pairs = True

    def __init__(
        self,
        d_model: int,
        *,
        n_classes: int,  # what there is to choose from
        pool: Pooling = "mean",  # the vector that stands for a sequence
        norm: str | Spec = "none",  # behind pooling
    ) -> None:
        super().__init__(d_model, pool=pool, norm=norm)
        self.compare = Linear(4 * d_model, d_model)
        self.out = Linear(d_model, n_classes)

    def init_state(self, batch: int) -> PooledState:
        raise UserError("two sequences that are read side by side have no state and cannot be cut")

    def forward(self, h: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        return self.out(self._compared(h, lengths)), None

    def loss(self, h: Tensor, target: Int[Tensor, " C"], lengths: Tensor | None = None, **how: Any) -> Tensor:
        return cross_entropy(self._compared(h, lengths), self.out.weight, target, self.out.bias, **how)

    def _compared(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        pooled, _ = super().forward(h, None, lengths)
        u, v = pooled[::2], pooled[1::2]
        return F.relu(self.compare(torch.cat([u, v, u * v, u - v], -1)))


HEADS: dict[str, type[Head]] = {
    "tag": Tag, "predict": Predict, "classify": Classify, "regress": Regress, "pair": Pair, "masked": Masked,
    "pretrain": Pretrain, "pooled": Pooled, "none": Hidden,
}  # fmt: skip


def make_head(spec: Spec, d_model: int) -> Head:
    cls = choose("head", spec.name, HEADS)
    check_options(f"head {spec.name!r}", cls, spec.options)
    return cls(d_model, **spec.options)
