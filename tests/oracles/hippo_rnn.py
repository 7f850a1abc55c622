"""The equations of Gu et al. 2020 in a plain loop: theorems 1 and 2 element by element, sampled by SciPy."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy.signal import cont2discrete
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def printed(measure: str, order: int) -> tuple[np.ndarray, np.ndarray]:
    A, B = np.zeros((order, order)), np.ones((order, 1))
    for n in range(order):
        for k in range(order):
            root = math.sqrt((2 * n + 1) * (2 * k + 1))
            A[n, k] = {
                "legs": -root if n > k else -(n + 1) if n == k else 0,
                "legt": -root * (1 if k <= n else (-1) ** (n - k)),
                "lagt": -1 if n >= k else 0,
            }[measure]
        B[n] = 1 if measure == "lagt" else math.sqrt(2 * n + 1)
    return A, B


def loop(x: Tensor, m: torch.nn.Module, gaps: list[list[float]], order: int) -> Tensor:
    A, B = printed(m.measure, order)
    rows = []
    for row, dts in zip(x, gaps, strict=True):
        c, h, now = torch.zeros(len(m.L), order, dtype=x.dtype), torch.zeros_like(row[0]), 0.0
        ys = [h] * len(row)
        for t, gap in enumerate(dts):
            gates = m.from_x.weight @ row[t] + m.from_x.bias + m.U @ torch.cat([h, c.flatten()])
            g, r = gates.chunk(2)
            h = ys[t] = (1 - torch.sigmoid(g)) * h + torch.sigmoid(g) * torch.tanh(r)
            now += gap
            step = gap / (now if m.measure == "legs" else m.theta)
            discrete = cont2discrete((A, B, np.eye(order), np.zeros((order, 1))), step, "bilinear")
            Ad, Bd = (torch.from_numpy(part) for part in discrete[:2])
            c = torch.stack([Ad @ one + Bd[:, 0] * f for one, f in zip(c, m.L @ h, strict=True)])
        rows.append(torch.stack(ys))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 4, dtype=torch.float64), lengths)
    irregular = torch.rand(3, 12, dtype=torch.float64) + 0.5
    for measure, dt in (("legs", None), ("legs", irregular), ("legt", None), ("lagt", irregular)):
        ours = mixers.create("hippo_rnn", 4, measure=measure, order=5, n_memories=2, theta=9.0).double()
        ours.A.data, ours.B.data = (torch.from_numpy(part) for part in printed(measure, 5))
        ours.B.data = ours.B.data[:, 0]
        gaps = (torch.ones(3, 12) if dt is None else dt).tolist()
        gaps = [row[:n] for row, n in zip(gaps, lengths.tolist(), strict=True)]
        y, _ = ours(x, ours.init_state(3), lengths, dt)
        wanted = loop(x, ours, gaps, 5)
        name = f"{measure}, {'steady' if dt is None else 'irregular'}"
        yield f"output, {name}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **{k: p for k, p in ours.named_parameters() if p.requires_grad}}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for what, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {what}, {name}", a, b
