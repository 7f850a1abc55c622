"""One vector of many layers': gamma sum_l softmax(s)_l h_l. Peters et al. 2018, eq. 1."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint


class ScalarMix(nn.Module):
    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))
        hint(self, "gamma", decay=False, own_init=True)

    @property
    def weights(self) -> Float[Tensor, " L"]:
        """What each layer counts: above 0, 1 in sum."""
        return self.scores.softmax(0)

    def forward(self, layers: Float[Tensor, "*n L D"]) -> Float[Tensor, "*n D"]:
        return self.gamma * torch.einsum("...ld,l->...d", layers, self.weights)
