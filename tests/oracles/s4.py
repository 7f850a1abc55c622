"""The state space with its whole dense matrix, conjugates included, inverted at every step, a row and step a time."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(x: Tensor, m: torch.nn.Module, gaps: list[list[float]]) -> Tensor:
    def both(z: Tensor) -> Tensor:
        z = torch.complex(z[..., 0], z[..., 1])
        return torch.cat([z, z.conj()], -1)

    poles = both(torch.stack([-torch.exp(m.log_damping), m.frequency], -1))
    P, B, C = both(m.P), both(m.B), both(m.C)
    A = torch.diag_embed(poles) - P[:, :, None] * P[:, None].conj()
    one = torch.eye(A.shape[-1])
    rows = []
    for row, dts in zip(x, gaps, strict=True):
        h, ys = torch.zeros_like(B), [torch.zeros_like(row[0])] * len(row)
        for t, gap in enumerate(dts):
            dt = torch.exp(m.log_dt)[:, None, None] * gap
            inverse = torch.linalg.inv(one - dt / 2 * A)
            driven = (one + dt / 2 * A) @ h[..., None] + (dt[..., 0] * B * row[t][:, None])[..., None]
            h = (inverse @ driven)[..., 0]
            y = (C * h).sum(-1)
            assert y.imag.abs().max() < 1e-9
            ys[t] = y.real + m.D * row[t]
        rows.append(torch.stack(ys))
    a, b = (F.gelu(torch.stack(rows)) @ m.out[2].weight.T + m.out[2].bias).chunk(2, -1)
    return a * torch.sigmoid(b)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("s4", 3, d_state=6).double()
    x, lengths = torch.randn(3, 12, 3, dtype=torch.float64, requires_grad=True), torch.tensor([12, 4, 1])
    weight = zero_pads(torch.randn(3, 12, 3, dtype=torch.float64), lengths)
    for name, dt in (("steady", None), ("irregular", torch.rand(3, 12, dtype=torch.float64) + 0.5)):
        gaps = (torch.ones(3, 12) if dt is None else dt).tolist()
        y, _ = ours(x, None, lengths, dt)
        wanted = loop(x, ours, [row[:n] for row, n in zip(gaps, lengths.tolist(), strict=True)])
        yield f"output, {name}", zero_pads(y, lengths), zero_pads(wanted, lengths)
        inputs = {"x": x, **dict(ours.named_parameters())}
        mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
        right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
        for what, a, b in zip(inputs, mine, right, strict=True):
            yield f"gradient of {what}, {name}", a, b
