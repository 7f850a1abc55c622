"""Rubanova et al. 2019, Algorithm 1, in a plain loop: the classical Runge-Kutta step between torch's GRU updates; with
many steps, SciPy's adaptive solver."""

from collections.abc import Iterator

import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from longwave import mixers
from oracles import against_loop


def runge_kutta(f, h: Tensor, dt: Tensor, solver: str) -> Tensor:
    tableau = {
        "rk4": ([[], [1 / 2], [0, 1 / 2], [0, 0, 1]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        "euler": ([[]], [1]),
    }
    rows, last = tableau[solver]
    slopes: list[Tensor] = []
    for row in rows:
        slopes.append(f(h + dt * sum(a * k for a, k in zip(row, slopes, strict=True))))
    return h + dt * sum(b * k for b, k in zip(last, slopes, strict=True))


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    dt = torch.rand(3, 9, dtype=torch.float64) + 0.5
    for solver in ("rk4", "euler"):
        ours = mixers.create("ode_rnn", 5, solver=solver, solver_steps=2).double()

        def loop(x: Tensor, dt: Tensor, ours=ours, solver=solver) -> Tensor:
            h, ys = torch.zeros(5, dtype=x.dtype), []
            for x_t, gap in zip(x, dt, strict=True):
                for _ in range(2):
                    h = runge_kutta(ours.field, h, gap / 2, solver)
                x_r, x_z, x_n = (ours.W @ x_t + ours.b).split(5)
                h_r, h_z, h_n = (ours.U @ h).split(5)
                n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * (h_n + ours.b_n))
                z = torch.sigmoid(x_z + h_z)
                h = (1 - z) * n + z * h
                ys.append(h)
            return torch.stack(ys)

        yield from against_loop(ours, loop, f", {solver}", dt=dt)

    ours = mixers.create("ode_rnn", 5, solver_steps=60).double()
    gru = nn.GRUCell(5, 5).double()
    gru.weight_ih, gru.weight_hh, gru.bias_ih = ours.W, ours.U, ours.b
    with torch.no_grad():
        gru.bias_hh.zero_()
        x, h, wanted = torch.randn(1, 4, 5, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.float64), []
        for t in range(4):
            flow = solve_ivp(lambda _, y: ours.field(torch.from_numpy(y)).numpy(), (0, float(dt[0, t])), h[0].numpy(),
                             rtol=1e-12, atol=1e-13)  # fmt: skip
            h = gru(x[:, t], torch.from_numpy(flow.y[None, :, -1]))
            wanted.append(h)
        yield "output, against an adaptive solver", ours(x, None, None, dt[:1, :4])[0], torch.stack(wanted, 1)
