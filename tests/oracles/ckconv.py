"""The sum over all earlier samples in a plain loop, a pair at a time, the network written out: at even steps, at uneven
ones, and in two pieces."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from longwave.mixer import Mixer
from oracles import against_loop


def loop(ours: Mixer):
    def run(x: Tensor, dt: Tensor | None = None) -> Tensor:
        p = dict(ours.named_parameters())
        dt = torch.ones_like(x[:, 0]) if dt is None else dt
        rows = []
        for t in range(len(x)):
            y = torch.zeros_like(x[0])
            for s in range(t + 1):
                h = dt[s + 1 : t + 1].sum()[None] / 16
                for i in range(3):
                    h = p[f"kernel.network.{i}.weight"] @ h + p[f"kernel.network.{i}.bias"]
                    h = torch.sin(30 * h) if i < 2 else h
                y = y + h * dt[s] * x[s]
            rows.append(p["out.weight"] @ y + p["out.bias"])
        return torch.stack(rows)

    return run


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("ckconv", 5, longest=16).double()
    yield from against_loop(ours, loop(ours))
    dt = torch.rand(3, 9, dtype=torch.float64) + 0.5
    yield from against_loop(ours, loop(ours), ", uneven", dt=dt)
    x = torch.randn(3, 9, 5, dtype=torch.float64)
    first, state = ours(x[:, :4], ours.init_state(3))
    then, _ = ours(x[:, 4:], state, None, dt[:, 4:])
    uneven = torch.cat([torch.ones_like(dt[:, :4]), dt[:, 4:]], 1)
    wanted = torch.stack([loop(ours)(row, gaps) for row, gaps in zip(x, uneven, strict=True)])
    yield "output, even at first", torch.cat([first, then], 1), wanted
