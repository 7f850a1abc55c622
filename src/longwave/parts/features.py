"""Feature maps phi for linear attention: phi(q) phi(k) stands for exp(q k), and must be positive for its normaliser."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def elu_plus_one(x: Float[Tensor, "*n K"]) -> Float[Tensor, "*n K"]:
    """Katharopoulos et al. 2020, eq. 7."""
    return F.elu(x) + 1


def scaled(x: Float[Tensor, "*n K"]) -> Float[Tensor, "*n K"]:
    """No map at all; its products may be negative. The scale is that of a dot product, on either side."""
    return x / x.shape[-1] ** 0.5


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu+1": elu_plus_one,
    "relu": lambda x: F.relu(x) + 1e-3,  # Choromanski et al. 2021, section 3.2 and its published code
    "exp": torch.exp,
    "softmax": lambda x: x.softmax(-1),  # Shen et al. 2021, eq. 5
    "identity": scaled,
}


def orthogonal_directions(count: int, width: int) -> Float[Tensor, "M K"]:
    """Gaussian directions, `width` at a time orthogonal to each other, each as long as a Gaussian vector is.
    Choromanski et al. 2021, section 2.4."""
    Q, R = torch.linalg.qr(torch.randn(-(-count // width), width, width))
    turned = Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]  # else the signs of Q follow a convention, not chance
    return turned.flatten(0, 1)[:count] * torch.randn(count, width).norm(dim=1, keepdim=True)


def log_positive_features(x: Float[Tensor, "*n K"], directions: Float[Tensor, "M K"]) -> Float[Tensor, "*n M"]:
    """w.x - |x|^2 / 2 for every direction w: the mean over w of the products of their exponentials, for q and for k,
    estimates exp(q.k). Choromanski et al. 2021, lemma 1."""
    return x @ directions.to(x).T - x.square().sum(-1, keepdim=True) / 2
