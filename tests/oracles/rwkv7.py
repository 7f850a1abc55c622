"""The equations of Peng et al. 2025, section 4, in a plain loop, a row, a step and a head at a time: two layers, the
second of which mixes the first one's value into its own."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.mixer import Mixer
from longwave.ops.ragged import zero_pads

H, N = 2, 3


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def token(p: dict[str, Tensor], x: Tensor, before: Tensor, S: list[Tensor], first: Tensor | None):
    """Output, value and states [V, K] after one token."""
    xr, xw, xk, xv, xa, xg = (x + (before - x) * p["mu"][i] for i in range(6))
    r, k, v = p["r.weight"] @ xr, p["k.weight"] @ xk, p["v.weight"] @ xv
    d = p["decay.up.weight"] @ torch.tanh(p["decay.down.weight"] @ xw) + p["decay.up.bias"]
    w = torch.exp(-math.exp(-0.5) * s(d))
    a = s(p["rate.up.weight"] @ (p["rate.down.weight"] @ xa) + p["rate.up.bias"])
    g = p["gate.up.weight"] @ s(p["gate.down.weight"] @ xg)
    if first is not None:
        nu = s(p["mix_value.up.weight"] @ (p["mix_value.down.weight"] @ xv) + p["mix_value.up.bias"])
        v = v + (first - v) * nu
    kappa, k = k * p["removed"], k * (1 + (a - 1) * p["slowed"])
    outs, after = [], []
    for h in range(H):
        at = slice(h * N, (h + 1) * N)
        u = kappa[at] / kappa[at].norm()
        new = S[h] @ (torch.diag(w[at]) - torch.outer(u, a[at] * u)) + torch.outer(v[at], k[at])
        y = new @ r[at]
        y = (y - y.mean()) / torch.sqrt(y.var(unbiased=False) + N * 1e-5)
        y = y * p["norm.weight"][h] + p["norm.bias"][h]
        outs.append(y + (r[at] * p["bonus"][h] * k[at]).sum() * v[at])
        after.append(new)
    return p["out.weight"] @ (torch.cat(outs) * g), v, after


def loop(mixer: Mixer, x: Tensor, lengths: list[int], firsts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    p = dict(mixer.named_parameters())
    rows, values, states = [], [], []
    for b, length in enumerate(lengths):
        S, before = [torch.zeros(N, N, dtype=x.dtype)] * H, torch.zeros_like(x[b, 0])
        ys = [torch.zeros_like(x[b, 0])] * x.shape[1]
        vs = list(ys)
        for t in range(length):
            ys[t], vs[t], S = token(p, x[b, t], before, S, None if firsts is None else firsts[b, t])
            before = x[b, t]
        rows.append(torch.stack(ys))
        values.append(torch.stack(vs))
        states.append(torch.stack(S).mT)
    return torch.stack(rows), torch.stack(values), torch.stack(states)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    lower, upper = (mixers.create("rwkv7", H * N, n_heads=H, first=first).double() for first in (True, False))
    with torch.no_grad():
        for parameter in (*lower.parameters(), *upper.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.3)
    x, lengths = torch.randn(3, 9, H * N, dtype=torch.float64, requires_grad=True), torch.tensor([9, 4, 1])
    weight = torch.randn(3, 9, H * N, dtype=torch.float64)

    handed: dict[str, Tensor] = {}
    y, below = lower(x, lower.init_state(3), lengths, handed=handed)
    y, above = upper(y, upper.init_state(3), lengths, handed=handed)
    y = zero_pads(y, lengths)
    wanted, first, S_below = loop(lower, x, lengths.tolist(), None)
    wanted, _, S_above = loop(upper, wanted, lengths.tolist(), first)
    yield "output", y, wanted
    yield "S below", below.S, S_below
    yield "S above", above.S, S_above
    named = [("x", x), *lower.named_parameters(prefix="below"), *upper.named_parameters(prefix="above")]
    mine = torch.autograd.grad((y * weight).sum(), [t for _, t in named])
    right = torch.autograd.grad((wanted * weight).sum(), [t for _, t in named])
    for (name, _), a, b in zip(named, mine, right, strict=True):
        yield f"gradient of {name}", a, b
