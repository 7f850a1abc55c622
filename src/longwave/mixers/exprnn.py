"""ExpRNN: an RNN whose recurrent matrix is exactly orthogonal, the exponential of a skew one: nothing fades or grows.

Recurrence:
    Q = exp(A), A = -A^T        h_t = modrelu(U x_t + Q h_{t-1}), modrelu(z) = sign(z) relu(|z| + b)

Parallel form: none; U x is one product for all steps, Q h is sequential.

Cost: training and a decoded token O(d^2), and O(d^3) a call for the exponential; state d numbers.

Paper: Lezcano-Casado and Martinez-Rubio 2019, "Cheap orthogonal constraints in neural networks", sections 3.3 and 4;
modrelu, Arjovsky, Shah and Bengio 2016, eq. 8.

Deviations: none. Optimisers move the entries of A above its diagonal, so no step can leave the orthogonal matrices.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers.rnn import Hidden
from longwave.ops.linear import linear
from longwave.ops.precision import unrounded, wide
from longwave.ops.scan import scan


class ExpRNN(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        init: Literal["cayley", "henaff"] = "cayley",  # angles that Q turns planes by: few large ones, or uniform
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_model)
        self.U = nn.Parameter(torch.empty(d_model, d_model).uniform_(-bound, bound))
        pairs = d_model // 2
        if init == "cayley":  # of Helfrich, Willmott and Ye 2018
            angle = torch.tan(torch.rand(pairs) * (math.pi / 4))
        else:
            angle = (torch.rand(pairs) * 2 - 1) * math.pi
        row, column = torch.triu_indices(d_model, d_model, 1)
        planes = torch.zeros(d_model, d_model)
        planes[torch.arange(pairs) * 2, torch.arange(pairs) * 2 + 1] = angle
        self.skew = nn.Parameter(planes[row, column])
        self.b = nn.Parameter(torch.empty(d_model).uniform_(-0.01, 0.01))
        hint(self, "skew", decay=False, float32=True, own_init=True)

    def orthogonal(self) -> Float[Tensor, "D D"]:
        """Q, in at least float32."""
        d = len(self.b)
        row, column = torch.triu_indices(d, d, 1, device=self.skew.device)
        above = wide(self.skew).new_zeros(d, d).index_put((row, column), wide(self.skew))
        return torch.linalg.matrix_exp(above - above.mT)

    def init_state(self, batch: int) -> Hidden:
        return Hidden(self.zeros(batch, len(self.U)))

    def forward(
        self, x: Tensor, state: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden | None]:
        Q = self.orthogonal().to(x)

        @unrounded  # a rounded Q would not keep lengths
        def cell(ux: Tensor, old: Hidden) -> tuple[Tensor, Hidden]:
            z = ux + F.linear(old.h, Q)
            h = torch.sign(z) * torch.relu(z.abs() + self.b)
            return h, Hidden(h)

        return scan(cell, linear(x, self.U), state or self.init_state(len(x)), lengths)
