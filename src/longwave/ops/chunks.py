"""Time cut into chunks, and decays inside a chunk: what the chunked forms of the matrix recurrences share.

A chunk is [B, n, H, C, ...]: n chunks of C tokens. Every exponent is a sum of log-decays, never a difference of long
sums, so nothing overflows and a log-decay of -inf, a reset, stays exact.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def in_chunks(x: Tensor, size: int) -> Tensor:
    """[B, T, H, ...] to [B, n, H, C, ...], with zeros at the end: no key, no decay."""
    x = F.pad(x, [0, 0] * (x.ndim - 2) + [0, -x.shape[1] % size])
    return x.unflatten(1, (-1, size)).transpose(2, 3)


def out_of_chunks(x: Tensor, length: int) -> Tensor:
    """[B, n, H, C, ...] back to [B, T, H, ...]."""
    return x.transpose(2, 3).flatten(1, 2)[:, :length]


def decays_between(log_decay: Tensor) -> Tensor:
    """[B, n, H, C, C, K]: what is left at token i of what token j wrote, the product of the decays of j+1 ... i; zero
    for j > i."""
    C = log_decay.shape[3]
    lower = torch.ones(C, C, dtype=torch.bool, device=log_decay.device).tril()
    spread = log_decay[:, :, :, :, None].expand(-1, -1, -1, -1, C, -1)  # row i, column j: the decay of step i
    sums = spread.masked_fill(~lower.tril(-1)[..., None], 0.0).cumsum(3)
    return torch.where(lower[..., None], sums.exp(), 0.0)


def decayed_products(left: Tensor, right: Tensor, decay: Tensor) -> Tensor:
    """[B, n, H, C, C]: left_i . right_j after the decay between them, channel by channel or the same for all."""
    if decay.shape[-1] == 1:
        return (left @ right.mT) * decay[..., 0]
    return torch.einsum("bnhik,bnhjk,bnhijk->bnhij", left, right, decay)


def sums_after(x: Tensor) -> Tensor:
    """Sum of the later steps of the chunk."""
    later = F.pad(x[:, :, :, 1:], (0, 0, 0, 1))
    return later.flip(3).cumsum(3).flip(3)
