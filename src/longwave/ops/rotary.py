"""Rotary positions: channels i and i + n of a vector turn as a pair, by its position times the pair's rate.

The product of two vectors so turned depends on their distance. Angles are in float64: at position 1,000,000 float32
would be off by several hundredths of a radian.

Su et al. 2021, eq. 15, in the half-split order of Llama.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op


@op
def rotary(
    x: Float[Tensor, "B T H K"], pos: Int[Tensor, "#B T"], rates: Float[Tensor, " n"], gain: float = 1.0
) -> Float[Tensor, "B T H K"]:
    """The first 2 n channels turn, and grow by `gain`; those behind them stay as they are."""
    angle = (pos[..., None].double() * rates)[:, :, None]
    turn = torch.polar(torch.full_like(angle, gain), angle)
    n = len(rates)
    pairs = torch.complex(x[..., :n].double(), x[..., n : 2 * n].double()) * turn
    return torch.cat([pairs.real, pairs.imag, x[..., 2 * n :]], -1).to(x.dtype)


@rotary.samples
def rotary_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for T, K, n in ((1, 2, 1), (2, 7, 3), (40, 64, 32), (9, 12, 4)):
        rates = 10000.0 ** (-torch.arange(n, dtype=torch.float64) / n)
        yield f"T={T}, K={K}, n={n}", dict(x=make.normal(2, T, 3, K), pos=torch.arange(T)[None], rates=rates)
    pos = torch.tensor([[7], [1_000_000]]) + torch.arange(100)
    rates = torch.tensor([1, 0.3, 0.07, 1e-3]).double()
    yield "rows at different places", dict(x=make.normal(2, 100, 1, 8), pos=pos, rates=rates, gain=1.3)
    yield "in any order", dict(x=make.normal(2, 50, 2, 6), pos=make.integers(90, 2, 50), rates=torch.ones(3).double())


@rotary.form("torch")
def in_halves(x: Tensor, pos: Tensor, rates: Tensor, gain: float = 1.0) -> Tensor:
    angle = (pos[..., None].double() * rates)[:, :, None]
    cos, sin = (gain * angle.cos()).to(x), (gain * angle.sin()).to(x)
    n = len(rates)
    a, b, rest = x.split([n, n, x.shape[-1] - 2 * n], -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
