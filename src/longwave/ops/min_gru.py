"""minGRU: a GRU whose gate and candidate do not see the last state, so that it is an elementwise linear recurrence.

    z_t = s(gate_t)        h_t = (1 - z_t) h_{t-1} + z_t g(candidate_t)
    g(x) = x + 1/2 for x >= 0, s(x) below: positive, as the paper's log-space form wants it

s is the logistic function. minLSTM is the same recurrence: its forget and input gates are normalised to sum to 1, and
i / (f + i) = s(log i - log f).

Feng et al. 2024, "Were RNNs all we needed?", section 3 and appendix B.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.scan import linear_scan


@op
def min_gru(
    gate: Float[Tensor, "B T D"],
    candidate: Float[Tensor, "B T D"],
    state: Float[Tensor, "B D"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"] | None]:
    """Returns all h, and the last where an initial one was given."""
    h = torch.zeros_like(wide(gate[:, 0])) if state is None else state
    ys = []
    for t, (gt, ct) in enumerate(zip(wide(gate).unbind(1), wide(candidate).unbind(1), strict=True)):
        z = torch.sigmoid(gt)
        new = (1 - z) * h + z * positive(ct)
        h = new if lengths is None else torch.where((t < lengths)[:, None], new, h)
        ys.append(h)
    return torch.stack(ys, 1).to(gate.dtype), None if state is None else h


@min_gru.samples
def min_gru_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, D: int, scale: float = 1.0) -> dict[str, Any]:
        return dict(gate=make.normal(B, T, D, scale=scale), candidate=make.normal(B, T, D))

    for T in (1, 2, 37):
        yield f"T={T}", dict(**inputs(2, T, 3), state=make.normal(2, 3))
    yield "from zero", inputs(2, 50, 3)
    yield "gates wide open or shut", dict(**inputs(2, 40, 3, scale=100.0), state=make.normal(2, 3))
    yield "ragged", dict(**inputs(3, 70, 2), state=make.normal(3, 2), lengths=torch.tensor([0, 70, 33]))


@min_gru.form("torch.scan", worth=lambda gate, **_: "" if gate.shape[1] > 8 else "few steps: the loop is faster")
def by_scan(
    gate: Tensor, candidate: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    gates = wide(gate)
    h, last = linear_scan(torch.sigmoid(-gates), torch.sigmoid(gates) * positive(wide(candidate)), state, lengths)
    return h.to(gate.dtype), last


def positive(x: Tensor) -> Tensor:
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))
