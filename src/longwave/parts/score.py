"""How well a query matches a key, where it is not their dot product: scores for `ops.attention`.

A score is a function of q [B, T, H, K] and k [B, S, H, K] that gives [B, H, T, S].
"""

import torch
from jaxtyping import Float
from torch import Tensor

from longwave.ops.attention import Score


def additive(w: Float[Tensor, "H K"]) -> Score:
    """w . tanh(q + k): a network of one hidden layer, whose first matrix is that of the projections. Bahdanau et al.
    2015, appendix A.1.2.
    """
    return lambda q, k: torch.einsum("bthsk,hk->bhts", torch.tanh(q[:, :, :, None] + k.transpose(1, 2)[:, None]), w)
