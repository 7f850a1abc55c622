"""SciPy's cont2discrete on the real block form of the state space, then a plain loop, a row and a step at a time; the
gradients from a loop over complex modes."""

from collections.abc import Iterator

import numpy as np
import torch
from scipy.signal import cont2discrete
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def by_scipy(x: Tensor, m: torch.nn.Module, dt: list[list[float]]) -> Tensor:
    """What the state space answers, before the skip and the gate; every mode is a block [[a, -b], [b, a]] of A."""
    damping, frequency, steps, B, C = (
        p.detach().numpy() for p in (-m.log_damping.exp(), m.frequency, m.log_dt.exp(), m.B, m.C)
    )
    rows = []
    for row, gaps in zip(x.detach().numpy(), dt, strict=True):
        y = np.zeros_like(row)
        for n in range(len(steps)):
            A = np.array([[damping[n], -frequency[n]], [frequency[n], damping[n]]])
            readout = 2 * np.stack([C[:, n, 0], -C[:, n, 1]], 1)
            h = np.zeros(2)
            for t, gap in enumerate(gaps):
                Ad, Bd, *_ = cont2discrete((A, B[n], readout, np.zeros((len(C), len(C)))), steps[n] * gap)
                h = Ad @ h + Bd @ row[t]
                y[t] += readout @ h
        rows.append(y)
    return torch.from_numpy(np.stack(rows))


def loop(x: Tensor, m: torch.nn.Module, dt: list[list[float]]) -> Tensor:
    A, step = torch.complex(-torch.exp(m.log_damping), m.frequency), torch.exp(m.log_dt)
    B, C = torch.complex(m.B[:, 0], m.B[:, 1]), torch.complex(m.C[..., 0], m.C[..., 1])
    rows = []
    for row, gaps in zip(x, dt, strict=True):
        h, ys = torch.zeros_like(A), []
        for xt, gap in zip(row, gaps, strict=False):
            decay = torch.exp(A * step * gap)
            h = decay * h + (decay - 1) / A * (B @ xt.to(B))
            ys.append(2 * (C @ h).real)
        rows.append(torch.stack([*ys, *[torch.zeros_like(ys[0])] * (len(row) - len(ys))]))
    return torch.stack(rows)


def gated(y: Tensor, x: Tensor, m: torch.nn.Module) -> Tensor:
    y = torch.nn.functional.gelu(y + m.D * x)
    return y * torch.sigmoid(y @ m.gate.weight.T + m.gate.bias)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("s5", 3, d_state=8, n_blocks=2).double()
    x, lengths = torch.randn(3, 12, 3, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 3, dtype=torch.float64), lengths)
    for name, dt in (("steady", None), ("irregular", torch.rand(3, 12, dtype=torch.float64) + 0.5)):
        gaps = (torch.ones(3, 12) if dt is None else dt).tolist()
        y, _ = ours(x, None, None, dt)
        yield f"output, {name}, by SciPy", y, gated(by_scipy(x, ours, gaps), x, ours)
        gaps = [row[:n] for row, n in zip(gaps, lengths.tolist(), strict=True)]
        y, _ = ours(x, None, lengths, dt)
        wanted = gated(loop(x, ours, gaps), x, ours)
        yield f"output, {name}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **dict(ours.named_parameters())}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for what, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {what}, {name}", a, b
