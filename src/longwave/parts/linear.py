"""A linear layer whose product is an op: parameters, names and initialisation are those of torch.nn.Linear."""

from jaxtyping import Float
from torch import Tensor, nn

from longwave.ops.linear import linear


class Linear(nn.Linear):
    def forward(self, input: Float[Tensor, "*n I"]) -> Float[Tensor, "*n O"]:
        return linear(input, self.weight, self.bias)
