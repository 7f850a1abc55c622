"""SciPy's cont2discrete for every channel and step, and a plain loop; gradients from one that inverts the matrix."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import cont2discrete
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def matrix(m: torch.nn.Module) -> Tensor:
    T = torch.diag(m.T) + torch.diag(m.above, 1) + torch.diag(m.below, -1)
    return torch.diag(m.P) @ (torch.diag(m.E) + torch.linalg.inv(T)) @ torch.diag(m.Q)


def by_scipy(x: Tensor, m: torch.nn.Module, gaps: list[list[float]]) -> Tensor:
    A, B, C, dt = (p.detach().numpy() for p in (matrix(m), m.B, m.C, m.log_dt.exp()))
    y = np.zeros(x.shape)
    for row, dts in enumerate(gaps):
        for d in range(x.shape[2]):
            h = np.zeros(len(A))
            for t, gap in enumerate(dts):
                discrete = cont2discrete((A, B[d][:, None], C[d][None], np.zeros((1, 1))), dt[d] * gap, "bilinear")
                h = discrete[0] @ h + discrete[1][:, 0] * x[row, t, d].item()
                y[row, t, d] = C[d] @ h
    return torch.from_numpy(y)


def loop(x: Tensor, m: torch.nn.Module, gaps: list[list[float]]) -> Tensor:
    A, one = matrix(m), torch.eye(m.C.shape[1], dtype=x.dtype)
    rows = []
    for row, dts in zip(x, gaps, strict=True):
        h, ys = torch.zeros_like(m.C), [torch.zeros_like(row[0])] * len(row)
        for t, gap in enumerate(dts):
            dt = torch.exp(m.log_dt)[:, None, None] * gap
            driven = (one + dt / 2 * A) @ h[..., None] + dt * m.B[..., None] * row[t][:, None, None]
            h = (torch.linalg.inv(one - dt / 2 * A) @ driven)[..., 0]
            ys[t] = (m.C * h).sum(-1)
        rows.append(torch.stack(ys))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("lssl", 3, d_state=5).double()
    x, lengths = torch.randn(3, 12, 3, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 3, dtype=torch.float64), lengths)
    for name, dt in (("steady", None), ("irregular", torch.rand(3, 12, dtype=torch.float64) + 0.5)):
        gaps = (torch.ones(3, 12) if dt is None else dt).tolist()
        gaps = [row[:n] for row, n in zip(gaps, lengths.tolist(), strict=True)]
        y, _ = ours(x, None, lengths, dt)
        for how, run in (("by SciPy", by_scipy), ("by inverses", loop)):
            wanted = F.gelu(run(x, ours, gaps) + ours.D * x) @ ours.out.weight.T + ours.out.bias
            yield f"output, {name}, {how}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **dict(ours.named_parameters())}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for what, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {what}, {name}", a, b
