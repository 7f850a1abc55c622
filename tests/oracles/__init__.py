"""What each mixer was compared with: a file a mixer, found because it is there.

The docstring says what the oracle is; `pairs()` yields (what, ours, theirs) in float64: outputs, final states and the
gradients of inputs and parameters, on ragged batches where the oracle is right about them. The oracle is another
library's layer with our weights, or a plain loop written from the paper's equations. `docs/mixers.md` lists the largest
difference.
"""

from collections.abc import Iterator

import torch
from torch import Tensor


def gradients(
    ours: Tensor, theirs: Tensor, of: dict[str, tuple[Tensor, Tensor]]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The gradients of two outputs under the same random loss, in (what we, what they) computed them from."""
    weight = torch.randn(ours.shape, dtype=ours.dtype)
    mine = torch.autograd.grad((ours * weight).sum(), [a for a, _ in of.values()])
    right = torch.autograd.grad((theirs * weight).sum(), [b for _, b in of.values()])
    for name, a, b in zip(of, mine, right, strict=True):
        yield f"gradient of {name}", a, b
