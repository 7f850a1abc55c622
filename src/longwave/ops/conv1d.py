"""Convolution over time that mixes channels: y_t = bias + sum_w weight_w x_{t - dilation (W - 1 - w)}, W matrices.

Causal, its state is the window of the last dilation (W - 1) inputs. Centred, half of the taps look ahead (of an odd
number left over, one more does), there is no state, and beyond each row's own ends lie zeros.

The short convolution of `short_conv` keeps channels apart; the long one of `fftconv` has a tap for every token.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.ragged import with_past, zero_pads


@op
def conv1d(
    x: Float[Tensor, "B T I"],
    weight: Float[Tensor, "O I W"],
    bias: Float[Tensor, " O"] | None = None,
    window: Float[Tensor, "B M I"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    dilation: int = 1,
    causal: bool = True,
) -> tuple[Float[Tensor, "B T O"], Float[Tensor, "B M I"] | None]:
    """Returns y, and the window after each row's own last token where one was given."""
    around, after = _around(x, weight, window, lengths, dilation, causal)
    ys = []
    for t in range(x.shape[1]):
        seen = around[:, t : t + dilation * (weight.shape[2] - 1) + 1 : dilation]
        y = torch.einsum("bwi,oiw->bo", seen, weight)
        ys.append(y if bias is None else y + bias)
    return torch.stack(ys, 1), after


@conv1d.samples
def conv1d_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for T in (1, 2, 3, 20):
        yield f"T={T}", dict(x=make.normal(2, T, 3), weight=make.normal(2, 3, 4), window=make.normal(2, 3, 3))
    yield "dilated", dict(
        x=make.normal(2, 9, 2), weight=make.normal(3, 2, 3), bias=make.normal(3), window=make.normal(2, 8, 2),
        dilation=4,
    )  # fmt: skip
    yield "from the beginning", dict(x=make.normal(1, 5, 2), weight=make.normal(2, 2, 3), bias=make.normal(2))
    yield "one tap", dict(x=make.normal(1, 5, 2), weight=make.normal(2, 2, 1), window=make.normal(1, 0, 2))
    lengths = torch.tensor([0, 1, 6, 4])
    yield "ragged", dict(x=make.normal(4, 6, 2), weight=make.normal(2, 2, 3), window=make.normal(4, 4, 2),
                         lengths=lengths, dilation=2)  # fmt: skip
    for W in (2, 3):
        yield (
            f"centred, {W} taps",
            dict(x=make.normal(4, 6, 2), weight=make.normal(2, 2, W), lengths=lengths, dilation=2, causal=False),
        )


@conv1d.form("torch")
def channels_first(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, window: Tensor | None = None,
    lengths: Tensor | None = None, dilation: int = 1, causal: bool = True,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    around, after = _around(x, weight, window, lengths, dilation, causal)
    return F.conv1d(around.mT, weight, bias, dilation=dilation).mT, after


def _around(
    x: Tensor, weight: Tensor, window: Tensor | None, lengths: Tensor | None, dilation: int, causal: bool
) -> tuple[Tensor, Tensor | None]:
    held = dilation * (weight.shape[2] - 1)
    if causal:
        return with_past(x, held, window, lengths)
    return F.pad(zero_pads(x, lengths), (0, 0, held // 2, held - held // 2)), None
