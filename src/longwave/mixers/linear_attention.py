"""Linear attention: with a feature map in place of the exponential, the whole past is one sum, carried as a matrix.
Recurrence:
    S_t = S_{t-1} + phi(k_t) v_t^T        z_t = z_{t-1} + phi(k_t)        y_t = S_t^T phi(q_t) / (z_t . phi(q_t))

Parallel form:
    Y = (phi(Q) phi(K)^T masked) V, each row divided by its sum; in chunks, O(T) in all

Cost: training O(T d^2 / h); a decoded token O(d^2 / h); state d^2 / h + d numbers for h heads.

Paper: Katharopoulos et al. 2020, "Transformers are RNNs", eq. 7-12 and 18-20; relu, Choromanski et al. 2021; softmax,
Shen et al. 2021.

Deviations: none; the normaliser z is carried as one more column of S, whose values are 1. The paper's map is elu+1.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from longwave.errors import UserError, check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.parts.features import FEATURE_MAPS
from longwave.parts.linear import Linear
from longwave.state import State


class Sums(State):
    S: Float[Tensor, "B H K V"]  # the last column is z, where there is one


class LinearAttention(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with a state of its own
        feature: Literal["elu+1", "relu", "exp", "softmax", "identity"] = "elu+1",  # phi
        normalise: bool = True,  # divide by the sum of weights; the identity's may be zero
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        if normalise and feature == "identity":
            raise UserError("feature='identity' gives weights of either sign, whose sum may be zero: normalise=False")
        self.feature, self.normalise = feature, normalise
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.qkv = Linear(d_model, 3 * d_model, bias=False)
        self.out = Linear(d_model, d_model, bias=False)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Sums:
        return Sums(self.zeros(batch, self.n_heads, self.d_head, self.d_head + self.normalise, wide=True))

    def forward(
        self, x: Tensor, state: Sums | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Sums | None]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        phi = FEATURE_MAPS[self.feature]
        v = F.pad(v, (0, 1), value=1.0) if self.normalise else v
        y, S = linear_recurrence(phi(q), phi(k), v, None, None if state is None else state.S, lengths)
        if self.normalise:
            y = y[..., :-1] / y[..., -1:].clamp_min(torch.finfo(y.dtype).tiny)
        return self.out(y.flatten(2)), None if S is None else Sums(S)
