"""Rows of different length in one batch, padded on the right."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


def zero_pads(x: Shaped[Tensor, "B T ..."], lengths: Int[Tensor, " B"] | None, fill: float = 0.0) -> Tensor:
    """x with `fill` where no token is."""
    if lengths is None:
        return x
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return x.masked_fill(~real.view(*real.shape, *[1] * (x.ndim - 2)), fill)


def real_first(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Where to take tokens from, so that those that are real come first, in their order."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)


def to_the_right(
    x: Shaped[Tensor, "B T ..."], mask: Bool[Tensor, "B T"]
) -> tuple[Shaped[Tensor, "B T ..."], Int[Tensor, " B"]]:
    """A batch padded anywhere, padded on the right: the tokens that are real come first, in their order."""
    order = real_first(mask)
    return x.gather(1, order.view(*order.shape, *[1] * (x.ndim - 2)).expand_as(x)), mask.sum(1)


def last_tokens(x: Shaped[Tensor, "B T ..."], count: int, lengths: Int[Tensor, " B"] | None) -> Tensor:
    """The `count` tokens before each row's end, counting tokens of x; there must be that many."""
    if lengths is None:
        return x[:, x.shape[1] - count :]
    at = lengths[:, None] - count + torch.arange(count, device=x.device)
    return x.gather(1, at.view(*at.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:]))


def by_age(x: Shaped[Tensor, "B T D"], lengths: Int[Tensor, " B"] | None) -> Tensor:
    """Each row's tokens from its last one back, zeros beyond its beginning."""
    if lengths is None:
        return x.flip(1)
    at = (lengths[:, None] - 1 - torch.arange(x.shape[1], device=x.device))[..., None]
    return torch.where(at >= 0, x.gather(1, at.clamp(0).expand_as(x)), 0)


def previous(
    x: Shaped[Tensor, "B T D"], last: Shaped[Tensor, "B D"] | None, lengths: Int[Tensor, " B"] | None
) -> tuple[Tensor, Tensor | None]:
    """The token before each, `last` (or zeros) before the first; and each row's own last token, where one was given."""
    if last is None:
        return F.pad(x[:, :-1], (0, 0, 1, 0)), None
    every = torch.cat([last[:, None], x], 1)
    return every[:, :-1], last_tokens(every, 1, None if lengths is None else lengths + 1)[:, 0]


def with_past(
    x: Shaped[Tensor, "B T D"], count: int, window: Shaped[Tensor, "B W D"] | None, lengths: Int[Tensor, " B"] | None
) -> tuple[Tensor, Tensor | None]:
    """x behind the `count` tokens before it (the window, or zeros at the beginning), and the window after each row's
    own last token where one was given."""
    if window is None:
        return F.pad(x, (0, 0, count, 0)), None
    past = torch.cat([window, x], 1)
    return past, last_tokens(past, count, None if lengths is None else lengths + count)
