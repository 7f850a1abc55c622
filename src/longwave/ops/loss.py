"""Cross-entropy from hidden states: loss_t = -sum_c target_tc log softmax(W h_t + bias)_c, without holding all logits.

The logits of [T, vocabulary] numbers are most of a small language model's memory. Here tokens go in slices: each
slice's logits are made, turned into their gradient in place, and dropped; the gradients of h and W are ready when the
loss is (they are scaled by the incoming gradient in the backward pass). Only per-token losses that want a gradient
make the logits twice.

Label smoothing has two conventions: "mixed" blends the true distribution with a uniform one over all classes, so the
true class gets 1 - e + e / P (torch, most libraries); "strict" gives the true class exactly 1 - e and shares e among
the others.

Szegedy et al. 2016, section 7 (label smoothing).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import choose
from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.linear import linear
from longwave.ops.precision import wide

IGNORE = -100
SLICE_BYTES = 1 << 26  # of logits held at once; with each slice the gradient of all of W is read and written

REDUCTIONS = {"mean": "over tokens that count", "sum": "of all", "none": "one a token"}
SMOOTHINGS = {"mixed": lambda e, P: (1 - e, e / P), "strict": lambda e, P: (1 - e - e / (P - 1), e / (P - 1))}


@op
def cross_entropy(
    h: Float[Tensor, "*n D"],
    W: Float[Tensor, "P D"],
    target: Int[Tensor, "*n"],
    bias: Float[Tensor, " P"] | None = None,
    smoothing: float = 0.0,
    convention: str = "mixed",
    reduction: str = "mean",
) -> Float[Tensor, "*r"]:
    """Tokens whose target is -100 do not count: their loss is 0."""
    logp = torch.log_softmax(wide(F.linear(h, W, bias)), -1)
    true, others = choose("convention", convention, SMOOTHINGS)(smoothing, len(W))
    counts = target != IGNORE
    picked = logp.gather(-1, target.clamp_min(0)[..., None])[..., 0]
    losses = torch.where(counts, -(true * picked + others * logp.sum(-1)), 0.0)
    return _reduce(losses, counts, reduction)


@cross_entropy.samples
def cross_entropy_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for smoothing, convention in ((0.0, "mixed"), (0.1, "mixed"), (0.1, "strict")):
        for reduction in REDUCTIONS:
            target = torch.where(make.integers(4, 3, 7) == 0, IGNORE, make.integers(11, 3, 7))
            yield f"{reduction}, {convention} {smoothing}", dict(
                h=make.normal(3, 7, 5), W=make.normal(11, 5), target=target, bias=make.normal(11),
                smoothing=smoothing, convention=convention, reduction=reduction,
            )  # fmt: skip
    yield "nothing counts", dict(h=make.normal(2, 3), W=make.normal(4, 3), target=torch.full((2,), IGNORE))
    yield "large logits", dict(h=make.normal(9, 3, scale=300), W=make.normal(4, 3), target=make.integers(4, 9))


@cross_entropy.form("torch.slices")
def in_slices(
    h: Tensor, W: Tensor, target: Tensor, bias: Tensor | None = None, smoothing: float = 0.0, convention: str = "mixed",
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    return sliced(_losses_and_gradients, h, W, target, bias, smoothing, convention, reduction)


# logits [N, P], target [N], its weight, that of all classes -> losses [N], their gradient [N, P]
Gradient = Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


def sliced(
    gradient: Gradient, h: Tensor, W: Tensor, target: Tensor, bias: Tensor | None, smoothing: float, convention: str,
    reduction: str,
) -> Tensor:  # fmt: skip
    true, others = choose("convention", convention, SMOOTHINGS)(smoothing, len(W))
    counts = target.flatten() != IGNORE
    choose("reduction", reduction, REDUCTIONS)
    if reduction == "none" and torch.is_grad_enabled():
        losses = torch.cat([
            torch.utils.checkpoint.checkpoint(_losses, *piece, W, bias, true, others, use_reentrant=False)
            for piece in _slices(h, target, W)
        ])  # fmt: skip
        return losses.view(target.shape)
    losses = _Slices.apply(h, W, target, bias, true, others, reduction == "none", gradient)
    if reduction == "none":
        return losses.view(target.shape)
    return losses / counts.sum().clamp_min(1) if reduction == "mean" else losses


class _Slices(torch.autograd.Function):
    """The sum of all losses, or each of them without gradients."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, W: Tensor, target: Tensor, bias: Tensor | None, true: float, others: float, each: bool,
        gradient: Gradient,
    ) -> Tensor:  # fmt: skip
        want_h, want_W, _, want_bias, *_ = ctx.needs_input_grad
        device = h.device.type
        product = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else h.dtype
        matrix, shift = W.to(product), None if bias is None else bias.to(product)
        losses: list[Tensor] = []
        dh: list[Tensor] = []
        dW: Tensor | None = None
        db = torch.zeros_like(bias) if bias is not None and want_bias else None
        with torch.autocast(device, enabled=False):
            for piece, goal in _slices(h, target, W):
                piece = piece.to(product)
                loss, dlogits = gradient(linear(piece, matrix, shift), goal, true, others)
                losses.append(loss)
                if want_h:
                    dh.append(linear(dlogits, matrix.T).to(h.dtype))
                if want_W:
                    more = linear(dlogits.T, piece.T)
                    dW = more.to(W.dtype) if dW is None else dW.add_(more)
                if db is not None:
                    db += dlogits.sum(0)
        ready = [torch.cat(dh).view(h.shape) if want_h else None, dW, db]
        ctx.save_for_backward(*(t for t in ready if t is not None))
        ctx.there = [t is not None for t in ready]
        return torch.cat(losses) if each else torch.cat(losses).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ready = iter(ctx.saved_tensors)
        dh, dW, db = (next(ready) * grad if there else None for there in ctx.there)
        return dh, dW, None, db, None, None, None, None


def _slices(h: Tensor, target: Tensor, W: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    rows = max(1, SLICE_BYTES // (len(W) * h.element_size()))
    return zip(h.reshape(-1, h.shape[-1]).split(rows), target.flatten().split(rows), strict=True)


def _losses(h: Tensor, target: Tensor, W: Tensor, bias: Tensor | None, true: float, others: float) -> Tensor:
    logp = torch.log_softmax(wide(linear(h, W, bias)), -1)
    losses = true * F.nll_loss(logp, target, ignore_index=IGNORE, reduction="none")
    return losses if not others else losses - torch.where(target != IGNORE, others * logp.sum(-1), 0.0)


def _losses_and_gradients(logits: Tensor, target: Tensor, true: float, others: float) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax(wide(logits), -1)
    counts = target != IGNORE
    at = target.clamp_min(0)[:, None]
    losses = -true * logp.gather(1, at)[:, 0]
    if others:
        losses -= others * logp.sum(1)
    dlogits = logp.exp_().sub_(others)
    dlogits.scatter_add_(1, at, torch.full_like(at, -true, dtype=dlogits.dtype))
    return torch.where(counts, losses, 0.0), (dlogits * counts[:, None]).to(logits.dtype)


def _reduce(losses: Tensor, counts: Tensor, reduction: str) -> Tensor:
    choose("reduction", reduction, REDUCTIONS)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum().clamp_min(1) if reduction == "mean" else losses.sum()
