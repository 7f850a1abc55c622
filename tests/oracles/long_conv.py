"""numpy.convolve with squashed taps, a channel at a time, after scipy.ndimage's moving average where they are smoothed;
the gradients, from a product with the Toeplitz matrix of the taps."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import uniform_filter1d
from torch import Tensor

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for smooth in (None, 1):
        ours = mixers.create("long_conv", 5, longest=6, smooth=smooth, squash=0.1).double()
        x = torch.randn(2, 9, 5, dtype=torch.float64)
        h = ours.h.detach().numpy()
        if smooth:
            h = uniform_filter1d(h, 3, axis=0, mode="constant")
        k = np.sign(h) * np.maximum(np.abs(h) - 0.1, 0)
        rows = [[np.convolve(x[b, :, d].numpy(), k[:, d])[:9] for d in range(5)] for b in range(2)]
        y = torch.from_numpy(np.array(rows)).mT + ours.D * x
        a, b = (F.gelu(y) @ ours.out.weight.T + ours.out.bias).chunk(2, -1)
        yield f"output, smooth {smooth}", ours(x)[0], a * torch.sigmoid(b)

    def by_matrix(x: Tensor) -> Tensor:
        k = torch.where(ours.h.abs() > 0.1, ours.h - 0.1 * ours.h.sign(), 0)
        k = F.pad(k, (0, 0, 0, 9))
        matrix = torch.stack([torch.stack([k[t - s] if s <= t else 0 * k[0] for s in range(len(x))])
                              for t in range(len(x))])  # fmt: skip
        y = (matrix * x).sum(1) + ours.D * x
        a, b = (F.gelu(y) @ ours.out.weight.T + ours.out.bias).chunk(2, -1)
        return a * torch.sigmoid(b)

    ours = mixers.create("long_conv", 5, longest=6, squash=0.1).double()
    yield from against_loop(ours, by_matrix)
