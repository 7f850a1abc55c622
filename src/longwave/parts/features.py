"""Feature maps phi for linear attention: phi(q) phi(k) stands for exp(q k), and must be positive for its normaliser."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def elu_plus_one(x: Float[Tensor, "*n K"]) -> Float[Tensor, "*n K"]:
    """Katharopoulos et al. 2020, eq. 7."""
    return F.elu(x) + 1


FEATURE_MAPS = {"elu+1": elu_plus_one, "relu": F.relu, "exp": lambda x: x.exp()}
