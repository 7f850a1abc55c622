"""Where a token stands: added to it (sinusoids), turned into its queries and keys (rotary), or subtracted from its
scores (ALiBi).

Angles are computed in float64: at position 1,000,000 float32 would be off by several hundredths of a radian.

A rotary model reads sequences longer than it was trained on when its angles are scaled by one of `SCALINGS`, e.g.
Spec("yarn", factor=4.0, trained=4096). A rule that changes with the length of the sequence at hand ("dynamic") is not
among them: keys already turned would have to be turned again, and a sequence read in pieces would answer otherwise.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import choose
from longwave.ops.rotary import rotary
from longwave.registry import check_options
from longwave.spec import Spec

Rates = Float[Tensor, " n"]


def linear(rates: Rates, base: float, *, factor: float) -> tuple[Rates, float]:
    """Positions are squeezed: Chen et al. 2023, section 2.3."""
    return rates / factor, 1.0


def ntk(rates: Rates, base: float, *, factor: float) -> tuple[Rates, float]:
    """A larger base: the slowest channel is stretched by the factor, the fastest not at all (bloc97 2023)."""
    n = len(rates)
    return rates * factor ** (-torch.arange(n, device=rates.device).double() / max(1, n - 1)), 1.0


def yarn(
    rates: Rates,
    base: float,
    *,
    factor: float,
    trained: int,
    fast: float = 32.0,
    slow: float = 1.0,
    gain: float | None = None,
) -> tuple[Rates, float]:
    """Channels that turn fewer than `slow` times in the trained length are squeezed, those that turn more than `fast`
    times are not; between them a ramp; scores sharper by ln(factor), or as `gain` says: Peng et al. 2023, section 3.
    """
    n = len(rates)
    low, high = (n * math.log(trained / (turns * 2 * math.pi)) / math.log(base) for turns in (fast, slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), 2 * n - 1)
    squeezed = ((torch.arange(n, device=rates.device).double() - low) / max(high - low, 0.001)).clamp(0, 1)
    return rates * (1 - squeezed) + rates / factor * squeezed, 0.1 * math.log(factor) + 1 if gain is None else gain


def llama3(
    rates: Rates, base: float, *, factor: float, trained: int, low: float = 1.0, high: float = 4.0
) -> tuple[Rates, float]:
    """The same idea with another ramp, from `high` turns in the trained length to `low`: Llama 3.1's published code."""
    turns = trained * rates / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return rates * kept + rates / factor * (1 - kept), 1.0


SCALINGS: dict[str, Callable[..., tuple[Tensor, float]]] = dict(linear=linear, ntk=ntk, yarn=yarn, llama3=llama3)


def check_scaling(scaling: Spec | None) -> None:
    """Tell a person what is wrong with the name or the options of a scaling."""
    if scaling is not None:
        check_options(f"scaling {scaling.name!r}", choose("scaling", scaling.name, SCALINGS), scaling.options)


def _rates(n: int, base: float, device: torch.device, offset: int = 0) -> Rates:
    """base^(-i / n) for i = offset ... offset + n - 1."""
    return base ** (-(torch.arange(n, device=device, dtype=torch.float64) + offset) / n)


def rotate(
    x: Float[Tensor, "B T H K"], pos: Int[Tensor, "b T"], base: float = 10000.0, scaling: Spec | None = None
) -> Float[Tensor, "B T H K"]:
    """Rotary embedding: channels i and i + K/2 turn by pos / base^(2i / K). An odd last channel stays."""
    rates, gain = _rates(x.shape[-1] // 2, base, x.device), 1.0
    if scaling is not None:
        rates, gain = SCALINGS[scaling.name](rates, base, **scaling.options)
    return rotary(x, pos, rates, gain)


def sinusoids(pos: Int[Tensor, "b T"], d_model: int, base: float = 10000.0, offset: int = 0) -> Float[Tensor, "b T D"]:
    """sin in the even channels, cos in the odd ones, of pos / base^(2 (i + offset) / D), in float64. Vaswani et al.
    2017, section 3.5, has no offset; slides that count i from 1 have an offset of 1.
    """
    angle = pos[..., None].double() * _rates(-(-d_model // 2), base, pos.device, offset)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :d_model]


def alibi_slopes(n_heads: int) -> Float[Tensor, " H"]:
    """A geometric sequence, 2^(-8/n) ... 2^-8 for n heads a power of two; otherwise the odd members of the next one's
    fill the gap. Press et al. 2022, section 3 and its published code."""
    power = 1 << (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * torch.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * torch.arange(1, 2 * power + 1, 2))
    return torch.cat([slopes, between[: n_heads - power]])
