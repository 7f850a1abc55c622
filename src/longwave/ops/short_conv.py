"""Depthwise causal convolution with few taps: y_t = f(bias + sum_w weight_w x_{t-W+1+w}), channel by channel.

Its state is the window of the last W - 1 inputs.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import choose
from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.ragged import with_past

ACTIVATIONS = {"none": lambda x: x, "silu": F.silu}


@op
def short_conv(
    x: Float[Tensor, "B T D"],
    weight: Float[Tensor, "D W"],
    bias: Float[Tensor, " D"] | None = None,
    window: Float[Tensor, "B W-1 D"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    activation: str = "none",
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B W-1 D"] | None]:
    """Returns y, and the window after each row's own last token where one was given."""
    past, after = with_past(x, weight.shape[1] - 1, window, lengths)
    ys = []
    for t in range(x.shape[1]):
        y = torch.einsum("bwd,dw->bd", past[:, t : t + weight.shape[1]], weight)
        ys.append(y if bias is None else y + bias)
    return choose("activation", activation, ACTIVATIONS)(torch.stack(ys, 1)), after


@short_conv.samples
def short_conv_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for T in (1, 2, 3, 20):
        yield f"T={T}", dict(x=make.normal(2, T, 3), weight=make.normal(3, 4), window=make.normal(2, 3, 3))
    yield (
        "from the beginning",
        dict(x=make.normal(2, 9, 5), weight=make.normal(5, 4), bias=make.normal(5), activation="silu"),
    )
    yield "one tap", dict(x=make.normal(1, 5, 2), weight=make.normal(2, 1), window=make.normal(1, 0, 2))
    yield "ragged", dict(
        x=make.normal(4, 6, 2), weight=make.normal(2, 3), bias=make.normal(2), window=make.normal(4, 2, 2),
        lengths=torch.tensor([0, 1, 6, 4]), activation="silu",
    )  # fmt: skip


@short_conv.form("torch")
def shifted(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, window: Tensor | None = None,
    lengths: Tensor | None = None, activation: str = "none",
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """One pass a tap over whole sequences, channels last: no transpose."""
    T = x.shape[1]
    past, after = with_past(x, weight.shape[1] - 1, window, lengths)
    taps = weight.unbind(1)
    y = past[:, :T] * taps[0] if bias is None else torch.addcmul(bias, past[:, :T], taps[0])
    for w, tap in enumerate(taps[1:], 1):
        y = torch.addcmul(y, past[:, w : w + T], tap)
    return choose("activation", activation, ACTIVATIONS)(y), after
