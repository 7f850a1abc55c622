"""The log-signature of a path up to each of its points: what a differential equation driven by the path sees of it.

The signature collects the path's iterated integrals, a tensor a level: its displacement, its areas, its volumes. A
straight piece dx has the signature exp(dx) = (dx, dx dx / 2, dx dx dx / 6); pieces one after another multiply (Chen's
identity), S_t = S_{t-1} exp(dx_t). The logarithm takes out what lower levels repeat, and is told by its coefficients at
the Lyndon words: for three channels 3, 3 + 3, 3 + 3 + 8 numbers at depth 1, 2, 3.

    levels         a flat signature as its tensors
    product        of two signatures, Chen's identity
    log_signature  of growing pieces of a path, each begun anew where `fresh`

Each level is a sum over time of products of lower ones, so in parallel the levels are scans, one after another. Chen
1957; Lyons 1998; the coordinates, Kidger and Lyons 2021, "Signatory", section 2.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longwave.errors import UserError
from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.ops.scan import linear_scan

DEEPEST = 3


def signature_size(channels: int, depth: int) -> int:
    if not 1 <= depth <= DEEPEST:
        raise UserError(f"log-signatures are worked out to depth 1, 2 or {DEEPEST}, not {depth}")
    return sum(channels**level for level in range(1, depth + 1))


def log_signature_size(channels: int, depth: int) -> int:
    return sum(len(words) for words in lyndon_words(channels, depth))


@functools.cache
def lyndon_words(channels: int, depth: int) -> tuple[tuple[int, ...], ...]:
    """Of each length, the words smaller than all their rotations, as places in the flattened tensor of that level."""
    return tuple(
        tuple(
            place
            for place, word in enumerate(itertools.product(range(channels), repeat=length))
            if all(word < word[turn:] + word[:turn] for turn in range(1, length))
        )
        for length in range(1, depth + 1)
    )


def levels(flat: Float[Tensor, "*n N"], channels: int, depth: int) -> list[Tensor]:
    """Level k flattened to channels^k numbers."""
    return list(flat.split([channels**level for level in range(1, depth + 1)], -1))


def outer(a: Float[Tensor, "*n I"], b: Float[Tensor, "*n O"]) -> Float[Tensor, "*n P"]:
    """All products of an entry of a and one of b, in one axis."""
    return (a[..., None] * b[..., None, :]).flatten(-2)


def exponential(dx: Float[Tensor, "*n I"], depth: int) -> list[Tensor]:
    powers = [dx]
    for level in range(2, depth + 1):
        powers.append(outer(powers[-1], dx) / level)
    return powers


def product(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
    """The signature of one path followed by another."""
    mixed = ([outer(a[i], b[k - 1 - i]) for i in range(k)] for k in range(len(a)))
    return [sum(terms, x + y) for x, y, terms in zip(a, b, mixed, strict=True)]


def logarithm(s: Sequence[Tensor], channels: int) -> Float[Tensor, "*n O"]:
    """Its coefficients at the Lyndon words."""
    logs = [s[0]]
    if len(s) > 1:
        logs.append(s[1] - outer(s[0], s[0]) / 2)
    if len(s) > 2:
        logs.append(s[2] - (outer(s[0], s[1]) + outer(s[1], s[0])) / 2 + outer(outer(s[0], s[0]), s[0]) / 3)
    words = lyndon_words(channels, len(s))
    return torch.cat([log[..., list(places)] for log, places in zip(logs, words, strict=True)], -1)


@op
def log_signature(
    dx: Float[Tensor, "B T I"],
    fresh: Bool[Tensor, "B T"],
    depth: int,
    state: Float[Tensor, "B N"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T O"], Float[Tensor, "B N"] | None]:
    """dx are the steps of the path. Returns the log-signature after each, since the last step that was `fresh`, and the
    signature so far (the state, flat) where one was given."""
    dx, channels = zero_pads(wide(dx), lengths), dx.shape[2]
    anew = zero_pads(fresh[..., None], lengths, fill=False)
    S = dx.new_zeros(len(dx), signature_size(channels, depth)) if state is None else state
    ys = []
    for step, begin in zip(dx.unbind(1), anew.unbind(1), strict=True):
        S = torch.cat(product(levels(S.masked_fill(begin, 0), channels, depth), exponential(step, depth)), -1)
        ys.append(logarithm(levels(S, channels, depth), channels))
    return torch.stack(ys, 1), None if state is None else S


@log_signature.samples
def log_signature_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for depth in (1, 2, 3):
        fresh = make.between(0, 1, 2, 19) > 0.8
        state = make.normal(2, signature_size(3, depth))
        yield f"depth {depth}", dict(dx=make.normal(2, 19, 3), fresh=fresh, depth=depth, state=state)
    never = torch.zeros(2, 12, dtype=torch.bool)
    yield "from the beginning", dict(dx=make.normal(2, 12, 2), fresh=never, depth=3)
    yield "one step", dict(dx=make.normal(2, 1, 2), fresh=never[:, :1], depth=2, state=make.normal(2, 6))
    ragged = dict(dx=make.normal(3, 12, 2), fresh=make.between(0, 1, 3, 12) > 0.7, lengths=torch.tensor([0, 12, 5]))
    yield "ragged", dict(**ragged, depth=3, state=make.normal(3, 14))


@log_signature.form("torch.scan", worth=lambda dx, **_: "" if dx.shape[1] > 2 else "few steps: the product is faster")
def scanned(
    dx: Tensor, fresh: Tensor, depth: int, state: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    dx, channels = zero_pads(wide(dx), lengths), dx.shape[2]
    keep = (~zero_pads(fresh[..., None], lengths, fill=False)).to(dx)
    S = dx.new_zeros(len(dx), signature_size(channels, depth)) if state is None else state
    first, steps = levels(S, channels, depth), exponential(dx, depth)
    after: list[Tensor] = []
    before: list[Tensor] = []
    for k in range(depth):
        added = sum((outer(before[i], steps[k - 1 - i]) for i in range(k)), steps[k])
        every, _ = linear_scan(keep.expand_as(added), added, first[k])
        after.append(every)
        before.append(keep * torch.cat([first[k][:, None], every[:, :-1]], 1))
    return logarithm(after, channels), None if state is None else torch.cat([level[:, -1] for level in after], -1)
