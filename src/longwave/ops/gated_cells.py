"""LSTM and GRU, a step and over time.

    lstm    i, f, g, o = W x_t + U h_{t-1} + b      c_t = s(f) c_{t-1} + s(i) tanh(g)      h_t = s(o) tanh(c_t)
    gru     r, z = s(W x_t + U h_{t-1} + b)         n = tanh(W x_t + b + r (U h_{t-1} + b_n))
            h_t = (1 - z) n + z h_{t-1}

s is the logistic function. The order of the gates, and in the GRU the reset applied after the matrix product, are
those of torch.nn. The inputs of all steps are projected in one product; only U h is sequential. `lstm_cell` and
`gru_cell` are one step of each, for mixers that change a gate or do something between steps.

Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; Cho et al. 2014; the refine gate, Gu et al.
2020.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op

Cells = tuple[Tensor, Tensor]


def keep_gate(f: Float[Tensor, "*B D"], refine: Float[Tensor, "*B D"] | None = None) -> Float[Tensor, "*B D"]:
    """How much is kept: s(f), or with a refine gate r somewhere in its band: r (1 - (1 - s(f))^2) + (1 - r) s(f)^2."""
    f = torch.sigmoid(f)
    if refine is None:
        return f
    r = torch.sigmoid(refine)
    return r * (1 - (1 - f) ** 2) + (1 - r) * f**2


def uniform_bias(d_model: int) -> Float[Tensor, " D"]:
    """A bias for which s(bias) is spread uniformly over (1/d, 1 - 1/d): time scales from 1 to d (Gu et al. 2020)."""
    least = min(0.5, 1 / d_model)
    return torch.empty(d_model).uniform_(least, 1 - least).logit()


def lstm_cell(
    gates: Float[Tensor, "B gates"],
    U: Float[Tensor, "gates H"],
    h: Float[Tensor, "B H"],
    c: Float[Tensor, "B D"],
    refined: bool = False,
    tied: bool = False,
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
    """The next (h, c), from W x_t + b of the gates i, f, g, o, and a last one if `refined`.

    `tied` leaves out i: what is not kept is taken in.
    """
    parts = list((gates + F.linear(h, U)).chunk(4 + refined - tied, -1))
    take = None if tied else torch.sigmoid(parts.pop(0))
    f, g, o, *refine = parts
    keep = keep_gate(f, *refine)
    c = keep * c + (1 - keep if take is None else take) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell(
    gates: Float[Tensor, "B gates"],
    U: Float[Tensor, "gates D"],
    b_n: Float[Tensor, " D"],
    h: Float[Tensor, "B D"],
) -> Float[Tensor, "B D"]:
    """The next h, from W x_t + b of the gates r, z, n, and where there is a fourth, of the one that refines z."""
    n_gates = len(U) // len(b_n)
    (r, z, n, *refine), (ur, uz, un, *u_refine) = gates.chunk(n_gates, -1), F.linear(h, U).chunk(n_gates, -1)
    z = keep_gate(z + uz, *(a + b for a, b in zip(refine, u_refine, strict=True)))
    n = torch.tanh(n + torch.sigmoid(r + ur) * (un + b_n))
    return (1 - z) * n + z * h


@op
def lstm(
    x: Float[Tensor, "B T I"],
    W: Float[Tensor, "gates I"],
    U: Float[Tensor, "gates D"],
    b: Float[Tensor, " gates"],
    state: tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    refined: bool = False,
    tied: bool = False,
) -> tuple[Float[Tensor, "B T D"], tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]] | None]:
    """Returns all h, and the last (h, c) where initial ones were given. `refined`, `tied`: the gates of `lstm_cell`."""
    h = c = x.new_zeros(x.shape[0], U.shape[1])
    if state is not None:
        h, c = state
    ys = []
    for t, gates in enumerate(F.linear(x, W, b).unbind(1)):
        new_h, new_c = lstm_cell(gates, U, h, c, refined, tied)
        h, c = _keep(h, new_h, t, lengths), _keep(c, new_c, t, lengths)
        ys.append(h)
    return torch.stack(ys, 1), None if state is None else (h, c)


@op
def gru(
    x: Float[Tensor, "B T I"],
    W: Float[Tensor, "gates I"],
    U: Float[Tensor, "gates D"],
    b: Float[Tensor, " gates"],
    b_n: Float[Tensor, " D"],
    state: Float[Tensor, "B D"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"] | None]:
    """Returns all h, and the last where an initial one was given. A fourth gate refines z, as in `gru_cell`."""
    h = x.new_zeros(len(x), U.shape[1]) if state is None else state
    ys = []
    for t, gates in enumerate(F.linear(x, W, b).unbind(1)):
        h = _keep(h, gru_cell(gates, U, b_n, h), t, lengths)
        ys.append(h)
    return torch.stack(ys, 1), None if state is None else h


@lstm.samples
def lstm_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, I: int, D: int, gates: int = 4) -> dict[str, Any]:
        n = gates * D
        return dict(x=make.normal(B, T, I), W=make.normal(n, I), U=make.normal(n, D), b=make.normal(n))

    for T in (1, 2, 19):
        yield f"T={T}", dict(**inputs(2, T, 3, 5), state=(make.normal(2, 5), make.normal(2, 5)))
    yield "from zero", inputs(3, 9, 2, 2)
    for refined, tied in ((True, False), (False, True), (True, True)):
        more = dict(state=(make.normal(2, 5), make.normal(2, 5)), refined=refined, tied=tied)
        yield f"refined={refined} tied={tied}", dict(**inputs(2, 7, 3, 5, 4 + refined - tied), **more)
    yield (
        "ragged",
        dict(**inputs(3, 9, 4, 3), state=(make.normal(3, 3), make.normal(3, 3)), lengths=torch.tensor([0, 9, 4])),
    )


@gru.samples
def gru_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, I: int, D: int, gates: int = 3) -> dict[str, Any]:
        n = gates * D
        return dict(
            x=make.normal(B, T, I), W=make.normal(n, I), U=make.normal(n, D), b=make.normal(n), b_n=make.normal(D)
        )

    for T in (1, 2, 19):
        yield f"T={T}", dict(**inputs(2, T, 3, 5), state=make.normal(2, 5))
    yield "refined", dict(**inputs(2, 7, 3, 5, 4), state=make.normal(2, 5))
    yield "from zero", inputs(3, 9, 2, 2)
    yield "ragged", dict(**inputs(3, 9, 4, 3), state=make.normal(3, 3), lengths=torch.tensor([0, 9, 4]))


def _aten_when(lengths: Tensor | None, odd: bool) -> str:
    return (
        "torch has no refined or tied gates" if odd
        else "torch returns the state after the last step, pads included" if lengths is not None else ""
    )  # fmt: skip


def _aten_lstm_when(lengths: Tensor | None = None, refined: bool = False, tied: bool = False, **_: Any) -> str:
    return _aten_when(lengths, refined or tied)


def _aten_gru_when(U: Tensor, b_n: Tensor, lengths: Tensor | None = None, **_: Any) -> str:
    return _aten_when(lengths, len(U) > 3 * len(b_n))


@lstm.form("torch.aten", when=_aten_lstm_when)
def aten_lstm(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, state: Cells | None = None, lengths: Tensor | None = None,
    refined: bool = False, tied: bool = False,
) -> tuple[Tensor, Cells | None]:  # fmt: skip
    zero = x.new_zeros(1, len(x), U.shape[1])
    first = (zero, zero) if state is None else (state[0][None], state[1][None])
    weights = (W, U, b, torch.zeros_like(b))
    y, h, c = torch.lstm(x, first, weights, True, 1, 0.0, False, False, True)
    return y, None if state is None else (h[0], c[0])


@gru.form("torch.aten", when=_aten_gru_when)
def aten_gru(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    first = x.new_zeros(1, len(x), U.shape[1]) if state is None else state[None]
    b_u = torch.cat([torch.zeros_like(b[: -len(b_n)]), b_n])
    y, h = torch.gru(x, first, (W, U, b, b_u), True, 1, 0.0, False, False, True)
    return y, None if state is None else h[0]


lstm.form("torch.loop")(lstm.reference)
gru.form("torch.loop")(gru.reference)


def _keep(old: Tensor, new: Tensor, t: int, lengths: Tensor | None) -> Tensor:
    return new if lengths is None else torch.where((t < lengths)[:, None], new, old)
