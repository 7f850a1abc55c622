"""Algorithms 1 and 2 of the Mamba paper, with its names and shapes: a diagonal state space a channel, sampled by
zero-order hold, whose B, C and step are parameters (S4), or made from every token (S6).

    ssm              (x, A, B, C, Delta) of (B, L, D), (D, N), (D, N), (D, N), (D): a convolution or a recurrence
    selective_ssm    (x, A, B, C, Delta) of (B, L, D), (D, N), (B, L, N), (B, L, N), (B, L, D): a scan only

Mamba itself discretises its input by Delta B (see ops.selective_scan). Gu and Dao 2023, section 3.2.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.lti import discretize_diagonal, lti
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.ops.scan import linear_scan


def ssm(
    x: Float[Tensor, "B T D"],
    A: Float[Tensor, "D N"],
    B: Float[Tensor, "D N"],
    C: Float[Tensor, "D N"],
    delta: Float[Tensor, " D"],
    state: Float[Tensor, "B D N"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D N"] | None]:
    """Algorithm 1. Returns y, and the last h where an initial one was given."""
    z, gain = discretize_diagonal(torch.complex(A, torch.zeros_like(A)), delta[:, None])
    start = None if state is None else torch.stack([state, torch.zeros_like(state)], -1)
    y, h = lti(x, z, gain * B, torch.complex(C, torch.zeros_like(C)), start, lengths)
    return y, None if h is None else h[..., 0]


def selective_ssm(
    x: Float[Tensor, "B T D"],
    A: Float[Tensor, "D N"],
    B: Float[Tensor, "B T N"],
    C: Float[Tensor, "B T N"],
    delta: Float[Tensor, "B T D"],
    state: Float[Tensor, "B D N"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D N"] | None]:
    """Algorithm 2. Returns y, and the last h where an initial one was given."""
    z = zero_pads(wide(delta), lengths)[..., None] * A  # [B, T, D, N]
    driven = torch.expm1(z) / A * B[:, :, None] * x[..., None]
    every, last = linear_scan(z.exp(), driven, state)
    return (every * C[:, :, None]).sum(-1).to(x.dtype), last
