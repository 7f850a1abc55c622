"""The output of the S4 family: GELU, dropout, a linear layer, GLU."""

from jaxtyping import Float
from torch import Tensor, nn

from longwave.ops.glu_linear import glu_linear
from longwave.parts.linear import Linear


class GatedOutput(nn.Sequential):
    def __init__(self, d_model: int, dropout: float = 0.0) -> None:
        super().__init__(nn.GELU(), nn.Dropout(dropout), Linear(d_model, 2 * d_model), nn.GLU())
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
        if self.training and self.dropout:
            return super().forward(x)
        return glu_linear(x, self[2].weight, self[2].bias)
