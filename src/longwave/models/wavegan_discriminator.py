"""The discriminator of WaveGAN as a classifier of sounds: convolutions, each a quarter as long and twice as wide.

    h = x;    h = shuffle(leaky(conv(h)))  until 16 steps are left;    y = W flatten(h) + b

In training, phase shuffle moves each row's activations by up to n steps (reflected at the ends), so that the exact
phase of what was heard decides nothing. A sound shorter than `n_samples` is followed by silence, not by its pads.

Donahue et al. 2019, "Adversarial audio synthesis", section 2.3 (phase shuffle) and appendix D (the layers). Deviation:
each row draws its own shift, where the published code draws one for the batch; the last map has a number a class.
"""

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.models.model import Model
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear

LEFT = 16  # steps that the last convolution leaves


class WaveGANDiscriminator(Model):
    causal = False

    def __init__(
        self,
        *,
        n_classes: int,  # what there is to choose from
        n_samples: int = 16384,  # of the longest sound: 16 times a power of the stride
        d_input: int = 1,  # channels of the sound
        width: int = 64,  # channels after the first convolution; each further one doubles them
        taps: int = 25,  # of each convolution
        stride: int = 4,  # steps that become one
        shuffle: int = 2,  # phase shuffle by up to so many steps, in training
    ) -> None:
        super().__init__()
        check_positive(n_classes=n_classes, d_input=d_input, width=width, taps=taps, stride=stride - 1)
        n_layers = round(math.log(n_samples / LEFT, stride)) if n_samples > LEFT else 0
        if n_layers < 1 or LEFT * stride**n_layers != n_samples:
            right = LEFT * stride ** max(1, n_layers)
            raise UserError(
                f"n_samples must be {LEFT} times a power of stride={stride}, such as {right}; got {n_samples}"
            )
        self.n_samples, self.shuffle, self.around = n_samples, shuffle, taps - stride
        widths = [d_input, *(width * 2**i for i in range(n_layers))]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, taps, stride) for a, b in itertools.pairwise(widths))
        self.out = Linear(LEFT * widths[-1], n_classes)

    def forward(
        self, x: Float[Tensor, "B T C"], state: None = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B P"], None]:
        if state is not None:
            raise UserError("WaveGAN hears a whole sound at once: it has no state and cannot be cut")
        if x.shape[1] > self.n_samples:
            raise UserError(f"a sound of {x.shape[1]} samples: this model hears {self.n_samples} (n_samples)")
        h = F.pad(zero_pads(x, lengths), (0, 0, 0, self.n_samples - x.shape[1])).mT
        for i, conv in enumerate(self.convs):
            h = F.leaky_relu(conv(F.pad(h, (self.around // 2, self.around - self.around // 2))), 0.2)
            if self.training and self.shuffle and i < len(self.convs) - 1:
                h = phase_shuffle(h, torch.randint(-self.shuffle, self.shuffle + 1, (len(h),), device=h.device))
        return self.out(h.flatten(1)), None

    def loss(
        self, x: Tensor, target: Int[Tensor, " B"], lengths: Int[Tensor, " B"] | None = None, **how: Any
    ) -> Tensor:
        return F.cross_entropy(self(x, None, lengths)[0], target, **how)


def phase_shuffle(x: Float[Tensor, "B C T"], shift: Int[Tensor, " B"]) -> Float[Tensor, "B C T"]:
    """Each row later by its shift; what has no sample there mirrors the row's end."""
    last = x.shape[2] - 1
    at = (torch.arange(last + 1, device=x.device) - shift[:, None]).abs()
    at = last - (last - at).abs()
    return x.gather(2, at[:, None].expand_as(x))
