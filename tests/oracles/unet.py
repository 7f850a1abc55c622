"""torch's strided and transposed convolutions around the same inner mixers, a row alone."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.spec import Spec
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("unet", 5, mixer=Spec("conv", causal=False), pool=3).double()

    def scale(part, x: Tensor) -> Tensor:
        return x + part.mixer(F.layer_norm(x, x.shape[-1:], part.norm.weight, part.norm.bias)[None])[0][0]

    def loop(x: Tensor) -> Tensor:
        across = []
        for before, down in zip(ours.before[:-1], ours.down, strict=True):
            across.append(scale(before, x))
            weight = down.weight.unflatten(1, (3, -1)).mT
            x = F.conv1d(F.pad(across[-1].T, (0, -len(x) % 3))[None], weight, down.bias, stride=3)[0].T
        x = scale(ours.before[-1], x)
        for after, up, u in zip(reversed(ours.after), reversed(ours.up), reversed(across), strict=True):
            weight, bias = up.weight.T.unflatten(1, (3, -1)).mT, up.bias.unflatten(0, (3, -1))
            made = F.conv_transpose1d(x.T[None], weight, stride=3)[0].T + bias.repeat(len(x), 1)
            x = scale(after, made[: len(u)] + u)
        return x

    torch.manual_seed(1)
    yield from against_loop(ours, loop)
