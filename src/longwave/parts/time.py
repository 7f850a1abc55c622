"""The gap before each sample, in whichever form it came."""

import torch
from jaxtyping import Float
from torch import Tensor


def steps(x: Float[Tensor, "B T D"], dt: float | Tensor) -> Float[Tensor, "B T 1"]:
    """A dt that is a number, one a row or one a token, as one a token."""
    gaps = torch.as_tensor(dt, dtype=x.dtype, device=x.device)
    return (gaps if gaps.ndim == 2 else gaps.view(-1, 1)).expand(x.shape[:2])[..., None]
