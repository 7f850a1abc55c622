"""The parallel form of Sun et al. 2023, eq. 5 and 8, a row and a head at a time, with the rotation as complex numbers;
the state by the sum that eq. 6 unrolls to."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.mixer import Mixer
from longwave.ops.ragged import zero_pads

H, D = 2, 8


def turn(x: Tensor) -> Tensor:
    """[T, K]: channels i and i + K/2 are a complex number, turned by t / 10000^(2i / K)."""
    half = x.shape[1] // 2
    theta = 10000.0 ** (-2 * torch.arange(half, dtype=x.dtype) / x.shape[1])
    angle = torch.arange(len(x), dtype=x.dtype)[:, None] * theta
    z = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], 1)


def row(p: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """One sequence [T, D]: outputs and the state after it."""
    Wq, Wk, Wv, Wg = p["qkvg.weight"].split([D, D, 2 * D, 2 * D])
    time = torch.arange(len(x), dtype=x.dtype)
    ys, states = [], []
    for h in range(H):
        K, V = D // H, 2 * D // H
        q, k = turn(x @ Wq[h * K : (h + 1) * K].T), turn(x @ Wk[h * K : (h + 1) * K].T) / K**0.5
        v = x @ Wv[h * V : (h + 1) * V].T
        gamma = 1 - 2.0 ** (-5 - h)
        ages = time[:, None] - time[None, :]
        y = (q @ k.T * torch.where(ages >= 0, gamma**ages, 0.0)) @ v
        ys.append(y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-6))
        states.append(sum(gamma ** (len(x) - 1 - t) * torch.outer(k[t], v[t]) for t in range(len(x))))
    gate = x @ Wg.T
    return (torch.cat(ys, 1) * gate / (1 + torch.exp(-gate))) @ p["out.weight"].T, torch.stack(states)


def loop(mixer: Mixer, x: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    p = dict(mixer.named_parameters())
    found = [row(p, x[b, :n]) for b, n in enumerate(lengths)]
    ys = [torch.cat([y, y.new_zeros(x.shape[1] - len(y), D)]) for y, _ in found]
    return torch.stack(ys), torch.stack([S for _, S in found])


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("retnet", D, n_heads=H).double()
    x, lengths = torch.randn(3, 70, D, dtype=torch.float64, requires_grad=True), torch.tensor([70, 33, 1])
    weight = torch.randn(3, 70, D, dtype=torch.float64)
    y, state = ours(x, ours.init_state(3), lengths)
    y = zero_pads(y, lengths)
    wanted, S = loop(ours, x, lengths.tolist())
    yield "output", y, wanted
    yield "S", state.S, S
    inputs = [x, *ours.parameters()]
    mine = torch.autograd.grad((y * weight).sum(), inputs)
    right = torch.autograd.grad((wanted * weight).sum(), inputs)
    for name, a, b in zip(("x", "qkvg", "out"), mine, right, strict=True):
        yield f"gradient of {name}", a, b
