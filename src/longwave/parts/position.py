"""Where a token stands: added to it (sinusoids), turned into its queries and keys (rotary), or subtracted from its
scores (ALiBi).

Angles are computed in float64: at position 1,000,000 float32 would be off by several hundredths of a radian.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _angles(pos: Int[Tensor, "b T"], n: int, base: float) -> Float[Tensor, "b T n"]:
    """pos / base^(i / n) for i < n."""
    rates = base ** (-torch.arange(n, device=pos.device, dtype=torch.float64) / n)
    return pos[..., None].double() * rates


def rotate(x: Float[Tensor, "B T H K"], pos: Int[Tensor, "b T"], base: float = 10000.0) -> Float[Tensor, "B T H K"]:
    """Rotary embedding: channels i and i + K/2 turn by pos / base^(2i / K), so that a product of two such vectors
    depends on their distance. An odd last channel stays. Su et al. 2021, eq. 15, in the half-split order of Llama.
    """
    half = x.shape[-1] // 2
    angle = _angles(pos, half, base)[:, :, None]
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def sinusoids(pos: Int[Tensor, "b T"], d_model: int, base: float = 10000.0) -> Float[Tensor, "b T D"]:
    """sin in the even channels, cos in the odd ones, of pos / base^(2i / D), in float64. Vaswani et al. 2017, section
    3.5."""
    angle = _angles(pos, -(-d_model // 2), base)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :d_model]


def alibi_slopes(n_heads: int) -> Float[Tensor, " H"]:
    """A geometric sequence, 2^(-8/n) ... 2^-8 for n heads a power of two; otherwise the odd members of the next one's
    fill the gap. Press et al. 2022, section 3 and its published code."""
    power = 1 << (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * torch.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * torch.arange(1, 2 * power + 1, 2))
    return torch.cat([slopes, between[: n_heads - power]])
