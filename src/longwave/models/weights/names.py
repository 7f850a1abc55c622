"""Which tensors of a published checkpoint make up one of ours: one description, read in both directions.

Same("h.0.ln_1.weight")                          that tensor (a plain string says the same)
Joined(("q_proj.weight", ...), (64, 16, 16))     beside one another along the first axis
Stacked(("experts.0.up", "experts.1.up"))        one on another, along a new first axis
Through("c_attn.weight", torch.t, torch.t)       changed on the way in, and back on the way out
Absent()                                         they have none: it is zero
Own(draw)                                        they have none: it is made here, alike each time
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Get = Callable[[str], Tensor]
Change = Callable[[Tensor], Tensor]


class Piece:
    def read(self, get: Get) -> Tensor | None:
        """Ours, of theirs."""
        raise NotImplementedError

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Theirs, with their names, of ours."""
        raise NotImplementedError


Names = Mapping[str, Piece | str]  # our name: what it is made of


def piece(part: Piece | str) -> Piece:
    return Same(part) if isinstance(part, str) else part


@dataclass(frozen=True)
class Same(Piece):
    name: str

    def read(self, get: Get) -> Tensor:
        return get(self.name)

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        yield self.name, ours


@dataclass(frozen=True)
class Joined(Piece):
    parts: tuple[Piece | str, ...]
    sizes: tuple[int, ...] | None = None  # None: equal

    def read(self, get: Get) -> Tensor:
        return torch.cat([_there(part, get) for part in self.parts])

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        split = ours.split(self.sizes or len(ours) // len(self.parts))
        for part, own in zip(self.parts, split, strict=True):
            yield from piece(part).write(own)


@dataclass(frozen=True)
class Stacked(Piece):
    parts: tuple[Piece | str, ...]

    def read(self, get: Get) -> Tensor:
        return torch.stack([_there(part, get) for part in self.parts])

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        for part, own in zip(self.parts, ours.unbind(), strict=True):
            yield from piece(part).write(own)


@dataclass(frozen=True)
class Through(Piece):
    part: Piece | str
    ours: Change
    theirs: Change

    def read(self, get: Get) -> Tensor:
        return self.ours(_there(self.part, get))

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        return piece(self.part).write(self.theirs(ours))


@dataclass(frozen=True)
class Absent(Piece):
    def read(self, get: Get) -> None:
        return None

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        return iter(())


@dataclass(frozen=True)
class Own(Piece):
    make: Callable[[], Tensor]

    def read(self, get: Get) -> Tensor:
        return self.make()

    def write(self, ours: Tensor) -> Iterator[tuple[str, Tensor]]:
        return iter(())


def turned(name: str) -> Through:
    """A matrix stored the other way round."""
    return Through(name, torch.t, torch.t)


def taps(name: str) -> Through:
    """The weight of a depthwise convolution: [C, 1, K] of theirs is [C, K]."""
    return Through(name, lambda t: t[:, 0], lambda t: t[:, None])


def behind(name: str, unread: int) -> Through:
    """A table of theirs whose first rows nobody reads."""
    return Through(name, lambda t: t[unread:], lambda t: F.pad(t, (0, 0, unread, 0)))


def in_halves(name: str, heads: int, kept: int, turning: int) -> Through:
    """Rows of rotary channels in pairs (2i, 2i + 1), where ours are (i, i + turning / 2); behind `kept` others."""
    order = torch.cat([torch.arange(0, turning, 2), torch.arange(1, turning, 2)]) + kept
    head = torch.cat([torch.arange(kept), order])
    rows = (torch.arange(heads)[:, None] * len(head) + head).flatten()
    return Through(name, lambda t: t[rows.to(t.device)], lambda t: t[rows.argsort().to(t.device)])


def _there(part: Piece | str, get: Get) -> Tensor:
    t = piece(part).read(get)
    assert t is not None, "what is absent stands alone"
    return t
