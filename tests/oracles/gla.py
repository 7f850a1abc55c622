"""The recurrence of Yang et al. 2024, eq. 3, the layer of section 4.4 around it, a row, a head, a step at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(x: Tensor, m: torch.nn.Module, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Rows of outputs, zero behind each row's end, and the last S."""
    H, K, V = m.n_heads, m.d_k // m.n_heads, m.d_v // m.n_heads
    rows, last = [], []
    for row, length in enumerate(lengths):
        ys = [torch.zeros_like(x[0, 0])] * x.shape[1]
        S = [torch.zeros(K, V, dtype=x.dtype)] * H
        for t in range(length):
            q, k, v, g = (m.qkvg.weight @ x[row, t]).split([H * K, H * K, H * V, H * V])
            low, up = m.decay
            alpha = torch.sigmoid(up.weight @ (low.weight @ x[row, t]) + up.bias) ** (1 / m.gate_temper)
            heads = []
            for h in range(H):
                here, there = slice(h * K, (h + 1) * K), slice(h * V, (h + 1) * V)
                S[h] = alpha[here, None] * S[h] + torch.outer(k[here], v[there])
                o = S[h].T @ (q[here] / K**0.5)
                heads.append(o / torch.sqrt((o * o).mean() + 1e-5) * m.norm.weight)
            ys[t] = m.out.weight @ (torch.cat(heads) * g * torch.sigmoid(g))
        rows.append(torch.stack(ys))
        last.append(torch.stack(S))
    return torch.stack(rows), torch.stack(last)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 9, 8, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    weight = torch.randn(3, 9, 8, dtype=torch.float64)
    ours = mixers.create("gla", 8, n_heads=2).double()
    y, state = ours(x, ours.init_state(3), lengths)
    y = zero_pads(y, lengths)
    wanted, S = loop(x, ours, lengths.tolist())
    yield "output", y, wanted
    yield "S", state.S, S
    inputs = {"x": x, **dict(ours.named_parameters())}
    mine = torch.autograd.grad((y * weight).sum(), list(inputs.values()))
    right = torch.autograd.grad((wanted * weight).sum(), list(inputs.values()))
    for name, a, b in zip(inputs, mine, right, strict=True):
        yield f"gradient of {name}", a, b
