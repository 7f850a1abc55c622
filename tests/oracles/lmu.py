"""The equations of Voelker et al. 2019 in a plain loop over SciPy's cont2discrete of the matrix as printed there."""

from collections.abc import Iterator

import numpy as np
import torch
from scipy.signal import cont2discrete
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def printed(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 2, element by element."""
    A, B = np.zeros((order, order)), np.zeros((order, 1))
    for i in range(order):
        B[i] = (2 * i + 1) * (-1) ** i
        for j in range(order):
            A[i, j] = (2 * i + 1) * (-1 if i < j else (-1) ** (i - j + 1))
    return A, B


def loop(x: Tensor, m: torch.nn.Module, gaps: list[list[float]], order: int) -> Tensor:
    A, B = printed(order)
    D = x.shape[2]
    rows = []
    for row, dts in zip(x, gaps, strict=True):
        memory, h = torch.zeros(m.n_memories, order, dtype=x.dtype), torch.zeros(D, dtype=x.dtype)
        ys = [torch.zeros_like(h)] * len(row)
        for t, gap in enumerate(dts):
            discrete = cont2discrete((A, B, np.eye(order), np.zeros((order, 1))), gap / m.theta)
            Ad, Bd = (torch.from_numpy(part) for part in discrete[:2])
            both = m.from_x.weight @ row[t] + m.from_x.bias
            if m.feedback:
                both = both + m.from_h.weight @ h
            u, direct = both[:-D], both[-D:]
            if m.feedback:
                u = u + m.from_m.weight @ memory.flatten()
            memory = torch.stack([Ad @ one + Bd[:, 0] * ut for one, ut in zip(memory, u, strict=True)])
            h = ys[t] = torch.tanh(m.read.weight @ memory.flatten() + direct)
        rows.append(torch.stack(ys))
    return torch.stack(rows)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 4, dtype=torch.float64), lengths)
    for name, feedback, dt in (
        ("parallel", False, None), ("irregular", False, torch.rand(3, 12, dtype=torch.float64) + 0.5),
        ("feedback", True, None),
    ):  # fmt: skip
        ours = mixers.create("lmu", 4, order=6, theta=9.0, n_memories=2, feedback=feedback).double()
        gaps = (torch.ones(3, 12) if dt is None else dt).tolist()
        gaps = [row[:n] for row, n in zip(gaps, lengths.tolist(), strict=True)]
        y, _ = ours(x, ours.init_state(3), lengths, dt)
        wanted = loop(x, ours, gaps, 6)
        yield f"output, {name}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **{k: p for k, p in ours.named_parameters() if p.requires_grad}}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for what, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {what}, {name}", a, b
