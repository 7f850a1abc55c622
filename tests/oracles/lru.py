"""The equations of Orvieto et al. 2023 in a plain loop over complex matrices, a row and a step at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("lru", 6, d_state=5).double()
    x, lengths = torch.randn(3, 20, 6, dtype=torch.float64, requires_grad=True), torch.tensor([20, 7, 1])
    weight = torch.randn(3, 20, 6, dtype=torch.float64)
    turn = torch.exp(-torch.exp(ours.nu) + 1j * torch.exp(ours.theta))
    B = torch.exp(ours.gain)[:, None] * (ours.B[:5] + 1j * ours.B[5:])
    C = ours.C[:, :5] - 1j * ours.C[:, 5:]
    rows, hs = [], []
    for b, length in enumerate(lengths.tolist()):
        h = torch.zeros(5, dtype=torch.complex128)
        ys = [torch.zeros(6, dtype=x.dtype)] * 20
        for t in range(length):
            h = torch.diag(turn) @ h + B @ x[b, t].to(B)
            ys[t] = (C @ h).real + ours.D * x[b, t]
        rows.append(torch.stack(ys))
        hs.append(torch.view_as_real(h))
    wanted = torch.stack(rows)
    y, state = ours(x, ours.init_state(3), lengths)
    y = zero_pads(y, lengths)
    yield "output", y, wanted
    yield "h", state.h, torch.stack(hs)
    p = dict(ours.named_parameters())
    mine = torch.autograd.grad((y * weight).sum(), [x, *p.values()])
    right = torch.autograd.grad((wanted * weight).sum(), [x, *p.values()])
    for name, a, b in zip(("x", *p), mine, right, strict=True):
        yield f"gradient of {name}", a, b
