"""Exact training on sequences of any length: the activations of one chunk in memory, beside the states between chunks.

    y, _ = chunked(mixer, x, chunk=4096)
    loss(y).backward()              the gradients of the whole, as if mixer(x) had been called

By the one law a sequence may be cut anywhere. Forward, chunk after chunk, keeps only the states at the cuts; backward
goes through the chunks from the last to the first, computes each again (random numbers replayed) and hands the gradient
of its first state to the chunk before. That takes one more forward pass. States that are constant in size stay so; an
append-only buffer (attention, a long convolution) is shared between the cuts.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from jaxtyping import Int
from torch import Tensor, nn

from longwave.errors import UserError
from longwave.mixer import Bidirectional
from longwave.record import AuxLoss, aux_loss, aux_losses, is_collecting
from longwave.replay import autocast_here, gradients, random_state, set_random
from longwave.state import State

Piece = Callable[..., tuple[Tensor, Any]]


def chunked(
    mixer: Any,
    x: Tensor,
    state: Any = None,
    lengths: Int[Tensor, " B"] | None = None,
    dt: float | Tensor | None = None,
    *,
    chunk: int,
) -> tuple[Tensor, Any]:
    """What `mixer(x, state, lengths, dt)` returns, gradients included, for a mixer or a model of any make.

    Of a `Bidirectional`, each way is cut by itself.
    """
    if isinstance(mixer, Bidirectional):
        return mixer.each_way(lambda one, *given: chunked(one, *given, chunk=chunk)[0], x, lengths, dt), None
    by_token = dt if isinstance(dt, Tensor) and dt.ndim == 2 else None
    if isinstance(dt, Tensor) and dt.requires_grad and by_token is None:
        raise UserError("in chunks, only a dt of a number a token [B, T] carries a gradient")

    def piece(x: Tensor, dt_here: Tensor | None, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        step = dt if by_token is None else dt_here
        return mixer(x, state, lengths) if step is None else mixer(x, state, lengths, step)

    start = mixer.init_state(len(x)) if state is None else state
    y, last = in_chunks(mixer, piece, (x, by_token), start, lengths, chunk=chunk)
    return y, None if state is None else last


def in_chunks(
    owner: nn.Module,
    piece: Piece,
    series: Sequence[Tensor | None],
    state: State,
    lengths: Int[Tensor, " B"] | None = None,
    *,
    chunk: int,
) -> tuple[Tensor, Any]:
    """`piece(*series, state, lengths) -> (y, state)` over pieces of the series, which are cut along time.

    What the pieces return is joined along time; numbers (a summed loss) are added up. `owner` holds the parameters.
    """
    if chunk < 1:
        raise UserError(f"chunk must be at least 1 token, got {chunk}")
    for name, part in owner.named_modules():
        if not getattr(part, "causal", True):
            raise UserError(f"{name or type(part).__name__} sees the whole sequence at once: it cannot be cut")
        if part.training and "times" in getattr(part, "couples", ()):
            raise UserError(f"{name or type(part).__name__} couples times in training: it cannot be trained in chunks")
    leaves, structure = pytree.tree_flatten(state)
    parameters = [p for p in owner.parameters() if p.requires_grad]
    job = _Job(piece, chunk, lengths, structure, len(series), len(leaves), is_collecting())
    y, *rest = _InChunks.apply(job, *series, *leaves, *parameters)
    terms, last = rest[: len(job.terms)], rest[len(job.terms) :]
    for name, total in zip(job.terms, terms, strict=True):
        aux_loss(name, total)
    return y, pytree.tree_unflatten(last, job.last)


@dataclass
class _Job:
    """What forward and backward share beside tensors."""

    piece: Piece
    chunk: int
    lengths: Tensor | None
    structure: pytree.TreeSpec  # of the first state
    n_series: int
    n_leaves: int
    collects: bool
    last: Any = None  # structure of the last state
    terms: list[str] = field(default_factory=list)  # names of auxiliary losses
    kept: list["_Cut | None"] = field(default_factory=list)

    def collecting(self) -> AbstractContextManager[list[AuxLoss]]:
        """Auxiliary losses, where whoever calls collects them."""
        return aux_losses() if self.collects else nullcontext([])

    def split(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        a, b = self.n_series, self.n_series + self.n_leaves
        return tensors[:a], tensors[a:b], tensors[b:]

    def at(self, series: Sequence[Tensor | None], i: int) -> tuple[list[Tensor | None], Tensor | None]:
        """The series in chunk i, and how many of its tokens each row has."""
        start = i * self.chunk
        here = [None if t is None else t[:, start : start + self.chunk] for t in series]
        size = max(t.shape[1] for t in here if t is not None)
        return here, None if self.lengths is None else (self.lengths - start).clamp(0, size)


@dataclass
class _Cut:
    """All that a chunk is computed again from."""

    state: Any
    random: list[Tensor]
    autocast: Callable[[], AbstractContextManager[Any]]


class _InChunks(torch.autograd.Function):
    """Parameters are inputs, so that autograd.grad, hooks and DDP see ordinary gradients."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Any) -> tuple[Tensor | None, ...]:
        series, leaves, _ = job.split(tensors)
        state = pytree.tree_unflatten(list(leaves), job.structure).clone()  # a copy of our own to write into
        length, device = next((t.shape[1], t.device) for t in series if t is not None)
        ys: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        for i in range(-(-length // job.chunk)):  # grad mode is off in here
            here, lengths = job.at(series, i)
            job.kept.append(_Cut(state.snapshot(), random_state(device), autocast_here(device)))
            with job.collecting() as terms:
                y, state = job.piece(*here, state, lengths)
            ys.append(y)
            for term in terms:
                sums[term.name] = sums.get(term.name, 0) + _per_token(term)
        leaves, job.last = pytree.tree_flatten(state.snapshot())
        job.terms = list(sums)
        ctx.job = job
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(t for t in leaves if t is not None and not t.is_floating_point()))
        return (_joined(ys), *sums.values(), *leaves)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor, *rest: Tensor | None) -> tuple[Tensor | None, ...]:
        job: _Job = ctx.job
        series, _, parameters = job.split(ctx.saved_tensors)
        dterms = dict(zip(job.terms, rest, strict=False))
        dstate = list(rest[len(job.terms) :])
        dseries = [torch.zeros_like(t) if t is not None and t.requires_grad else None for t in series]
        dparameters: list[Tensor | None] = [None] * len(parameters)
        device = dy.device
        random = random_state(device)
        for i in reversed(range(len(job.kept))):
            cut, job.kept[i] = job.kept[i], None
            if cut is None:
                raise UserError("the gradients of a chunked pass can be taken once: the states between chunks are gone")
            set_random(cut.random, device)
            here, lengths = job.at(series, i)
            here = [_leaf(t, old is not None and old.requires_grad) for t, old in zip(here, series, strict=True)]
            flat, structure = pytree.tree_flatten(cut.state)
            flat = [_leaf(t, t is not None and t.is_floating_point()) for t in flat]
            with torch.enable_grad(), cut.autocast(), job.collecting() as terms:
                y, last = job.piece(*here, pytree.tree_unflatten(flat, structure), lengths)
            outs: list[tuple[Tensor | None, Tensor | None]] = [
                (y, dy if y.ndim == 0 else dy[:, i * job.chunk : (i + 1) * job.chunk])
            ]
            outs += [(term.total, dterms[term.name]) for term in terms]
            outs += list(zip(pytree.tree_leaves(last), dstate, strict=True))
            found = iter(gradients(outs, [*here, *flat, *parameters]))
            for whole, g in zip(dseries, [next(found) for _ in here], strict=True):
                if whole is not None and g is not None:
                    whole[:, i * job.chunk : (i + 1) * job.chunk] = g
            dstate = [next(found) for _ in flat]
            dparameters = [_sum(a, b) for a, b in zip(dparameters, found, strict=True)]
        set_random(random, device)
        return (None, *dseries, *dstate, *dparameters)


def _leaf(t: Tensor | None, wanted: bool) -> Tensor | None:
    return t if t is None else t.detach().requires_grad_(wanted)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a.add_(b)


def _joined(ys: list[Tensor]) -> Tensor:
    return torch.stack(ys).sum(0) if ys[0].ndim == 0 else torch.cat(ys, 1)


def _per_token(term: AuxLoss) -> Tensor:
    if not term.per_token:
        raise UserError(f"the auxiliary loss {term.name!r} is no sum over tokens: it cannot be trained in chunks")
    return term.total
