"""The equations of Feng et al. 2024 in a plain loop, a row and a step at a time."""

from collections.abc import Iterator

from torch import Tensor

from longwave import mixers
from oracles.mingru import compared, g, s


def min_lstm(projected: Tensor, h: Tensor) -> Tensor:
    f, i, candidate = projected.chunk(3)
    f, i = s(f), s(i)
    return f / (f + i) * h + i / (f + i) * g(candidate)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    yield from compared(mixers.create("minlstm", 6).double(), min_lstm)
