"""The convolution and the pooling of Bradbury et al. 2017 in a plain loop, a row and a step at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for pooling in ("f", "fo", "ifo"):
        ours = mixers.create("qrnn", 5, d_conv=3, pooling=pooling).double()

        def loop(x: Tensor, ours=ours, pooling=pooling) -> Tensor:
            W, b = ours.gates.weight, ours.gates.bias
            c, ys = torch.zeros(5, dtype=x.dtype), []
            for t in range(len(x)):
                pre = b
                for back in range(3):
                    if t - back >= 0:
                        pre = pre + W[:, :, 2 - back] @ x[t - back]
                gate = dict(
                    zip(("z", "f", "i", "o") if pooling == "ifo" else ("z", "f", "o"), pre.split(5), strict=False)
                )
                f = torch.sigmoid(gate["f"])
                i = torch.sigmoid(gate["i"]) if pooling == "ifo" else 1 - f
                c = f * c + i * torch.tanh(gate["z"])
                ys.append(c if pooling == "f" else torch.sigmoid(gate["o"]) * c)
            return torch.stack(ys)

        yield from against_loop(ours, loop, f", {pooling}")
