"""A plain loop over the equations of S4D, a row, a channel and a step at a time, for all poles and both samplings."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(x: Tensor, m: torch.nn.Module, lengths: list[int], method: str) -> Tensor:
    A = torch.complex(-torch.exp(m.log_damping), m.frequency)
    C = torch.complex(*m.C.unbind(-1))
    rows = []
    for row, length in enumerate(lengths):
        channels = []
        for d in range(x.shape[2]):
            dt = m.log_dt[d].exp()
            if method == "zoh":
                decay = torch.exp(dt * A[d])
                gain = (decay - 1) / A[d]
            else:
                decay, gain = (1 + dt / 2 * A[d]) / (1 - dt / 2 * A[d]), dt / (1 - dt / 2 * A[d])
            h, ys = torch.zeros_like(decay), []
            for t in range(length):
                h = decay * h + gain * x[row, t, d]
                ys.append(2 * (C[d] * h).sum().real + m.D[d] * x[row, t, d])
            channels.append(F.pad(torch.stack(ys), (0, x.shape[1] - length)))
        rows.append(torch.stack(channels, -1))
    hidden = F.gelu(torch.stack(rows)) @ m.out[2].weight.T + m.out[2].bias
    a, b = hidden.chunk(2, -1)
    return a * torch.sigmoid(b)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 4, dtype=torch.float64), lengths)
    for init, method in (("lin", "zoh"), ("inv", "bilinear"), ("legs", "zoh"), ("real", "bilinear")):
        ours = mixers.create("s4d", 4, d_state=6, init=init, method=method).double()
        y, _ = ours(x, None, lengths)
        wanted = loop(x, ours, lengths.tolist(), method)
        yield f"output, {init} by {method}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **dict(ours.named_parameters())}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for name, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {name}, {init} by {method}", a, b
