"""SciPy's matrix exponential; a plain loop from Lezcano-Casado and Martinez-Rubio 2019; gradients through torch's."""

from collections.abc import Iterator

import torch
from scipy.linalg import expm
from torch import Tensor

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("exprnn", 5).double()

    def skew() -> Tensor:
        A, entries = torch.zeros(5, 5, dtype=torch.float64), iter(ours.skew)
        for i in range(5):
            for j in range(i + 1, 5):
                entry = next(entries)
                A = A + entry * torch.eye(5).double()[i][:, None] * torch.eye(5).double()[j]
                A = A - entry * torch.eye(5).double()[j][:, None] * torch.eye(5).double()[i]
        return A

    def loop(x: Tensor) -> Tensor:
        Q = torch.matrix_exp(skew())
        h, ys = torch.zeros(5, dtype=x.dtype), []
        for x_t in x:
            z = ours.U @ x_t + Q @ h
            h = torch.where(z > 0, 1.0, -1.0) * torch.relu(z.abs() + ours.b)
            ys.append(h)
        return torch.stack(ys)

    yield from against_loop(ours, loop)
    yield "Q", ours.orthogonal(), torch.from_numpy(expm(skew().detach().numpy()))
