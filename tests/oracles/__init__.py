"""What each mixer was compared with: a file a mixer, found because it is there.

The docstring says what the oracle is; `pairs()` yields (what, ours, theirs) in float64: outputs, final states and the
gradients of inputs and parameters, on ragged batches where the oracle is right about them. The oracle is another
library's layer with our weights, or a plain loop written from the paper's equations. `docs/mixers.md` lists the largest
difference.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from longwave.mixer import Mixer


def gradients(
    ours: Tensor, theirs: Tensor, of: dict[str, tuple[Tensor, Tensor]]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The gradients of two outputs under the same random loss, in (what we, what they) computed them from."""
    weight = torch.randn(ours.shape, dtype=ours.dtype)
    mine = torch.autograd.grad((ours * weight).sum(), [a for a, _ in of.values()])
    right = torch.autograd.grad((theirs * weight).sum(), [b for _, b in of.values()])
    for name, a, b in zip(of, mine, right, strict=True):
        yield f"gradient of {name}", a, b


def against_loop(
    ours: Mixer, loop: Callable[..., Tensor], which: str = "", width: int = 5, dt: Tensor | None = None
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """`ours` on a ragged batch, its parameters drawn at random, against `loop(x[T, D])`, a row alone; dt is [3, 9]."""
    lengths = torch.tensor([9, 4, 1])
    x = torch.randn(3, 9, width, dtype=torch.float64, requires_grad=True)
    named = dict(ours.named_parameters())
    with torch.no_grad():
        for p in named.values():
            p.add_(0.3 * torch.randn_like(p))
    given: Any = () if dt is None else (dt,)
    y, _ = ours(x, None, lengths, *given)
    rows = [loop(x[b, :n], *(each[b, :n] for each in given)) for b, n in enumerate(lengths.tolist())]
    got, wanted = torch.cat([y[b, :n] for b, n in enumerate(lengths.tolist())]), torch.cat(rows)
    yield f"output{which}", got, wanted
    weight = torch.randn_like(wanted)
    inputs = [x, *named.values()]
    mine, right = (torch.autograd.grad((each * weight).sum(), inputs, allow_unused=True) for each in (got, wanted))
    for name, a, b in zip(("x", *named), mine, right, strict=True):
        if a is not None or b is not None:
            yield f"gradient of {name}{which}", a, b
