"""Both schemes of Erichson et al. 2021 in a plain loop, with uneven gaps between samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for solver in ("euler", "midpoint"):
        ours = mixers.create("lipschitz_rnn", 5, solver=solver, beta=0.6, gamma=0.2, step=0.5).double()

        def loop(x: Tensor, dt: Tensor, ours=ours, solver=solver) -> Tensor:
            A, W = (0.4 * (M + M.T) + 0.6 * (M - M.T) - 0.2 * torch.eye(5).double() for M in ours.M)
            h, ys = torch.zeros(5, dtype=x.dtype), []
            for x_t, gap in zip(x, dt, strict=True):
                e = 0.5 * gap
                drive = ours.U @ x_t + ours.b
                slope = A @ h + torch.tanh(W @ h + drive)
                if solver == "midpoint":
                    half = h + e / 2 * slope
                    slope = A @ half + torch.tanh(W @ half + drive)
                h = h + e * slope
                ys.append(ours.out.weight @ h + ours.out.bias)
            return torch.stack(ys)

        yield from against_loop(ours, loop, f", {solver}", dt=torch.rand(3, 9, dtype=torch.float64) + 0.5)
