"""Morrill et al. 2021 in a plain loop: iterated integrals of the piecewise linear path summed point by point, their
logarithm by hand, one Runge-Kutta step a token. With depth 1 and windows of 1, the neural controlled equation
of Kidger et al. 2020 on that path."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from oracles import against_loop
from oracles.ode_rnn import runge_kutta


def integrals(points: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Of the path through these points: sums over its pieces of what came before, times the piece."""
    c = len(points[0])
    one, two, three = torch.zeros(c).double(), torch.zeros(c, c).double(), torch.zeros(c, c, c).double()
    for a, b in itertools.pairwise(points):
        d = b - a
        dd = torch.einsum("i,j->ij", d, d)
        three = three + torch.einsum("ij,k->ijk", two, d) + torch.einsum("i,jk->ijk", one, dd) / 2
        three = three + torch.einsum("ij,k->ijk", dd, d) / 6
        two = two + torch.einsum("i,j->ij", one, d) + dd / 2
        one = one + d
    return one, two, three


def log_signature(points: list[Tensor], depth: int) -> Tensor:
    one, two, three = integrals(points)
    c = len(one)
    area = (two - two.T) / 2  # the logarithm's second level: the symmetric part is the displacement's square
    volume = three - torch.einsum("i,jk->ijk", one, two) / 2 - torch.einsum("ij,k->ijk", two, one) / 2
    volume = volume + torch.einsum("i,j,k->ijk", one, one, one) / 3
    numbers = list(one)
    if depth > 1:
        numbers += [area[i, j] for i in range(c) for j in range(i + 1, c)]
    if depth > 2:
        words = [(i, j, k) for i in range(c) for j in range(c) for k in range(c)]
        numbers += [volume[w] for w in words if w < (w[1], w[2], w[0]) and w < (w[2], w[0], w[1])]
    return torch.stack(numbers)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    dt = torch.rand(3, 9, dtype=torch.float64) + 0.5
    for depth, window in ((1, 1), (2, 4), (3, 3)):
        ours = mixers.create("nrde", 5, depth=depth, window=window, channels=2).double()

        def loop(x: Tensor, dt: Tensor, ours=ours, depth=depth, window=window) -> Tensor:
            points = [torch.zeros(3).double()]
            for t in range(len(x)):
                points.append(torch.cat([dt[: t + 1].sum()[None], ours.path.weight @ x[t]]))
            z, ys = torch.zeros(5).double(), []
            for t in range(len(x)):
                begin = t // window * window
                L = log_signature(points[begin : t + 2], depth)

                def field(z: Tensor, L: Tensor = L) -> Tensor:
                    matrix = torch.tanh(ours.outer(torch.tanh(ours.inner(z))))
                    return matrix.view(5, len(L)) @ L

                y = runge_kutta(field, z, torch.ones(()), "rk4")
                ys.append(ours.out(y))
                if (t + 1) % window == 0:
                    z = y
            return torch.stack(ys)

        yield from against_loop(ours, loop, f", depth {depth}, windows of {window}", dt=dt)
