"""Sample arguments for ops: seeded, of one dtype, wanting gradients where asked."""

import torch
from torch import Tensor


class Make:
    """Draws the tensors of a case. Everything is drawn in float64 first, so that all dtypes see the same numbers."""

    def __init__(self, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = True) -> None:
        self.dtype = dtype
        self.grad = grad
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale
        return drawn.to(self.dtype).requires_grad_(self.grad)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low
        return drawn.to(self.dtype).requires_grad_(self.grad)

    def complex(self, real: Tensor, imag: Tensor) -> Tensor:
        return torch.complex(real.detach(), imag.detach()).requires_grad_(self.grad)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)
