"""LSTM and GRU over time: the inputs of all steps are one product of torch, the steps one kernel."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from longwave.ops.gated_cells import Cells, gru, lstm
from longwave.ops.linear import linear
from longwave.ops.native.bind import define, kernel, on_cpu, rows

_SIGNATURE = (
    "gates:BTX U:XD b_n:D? h:BD? c:BD? lengths:B/int64? y:BTD last_h:BD? last_c:BD? acts:BTX? extra:BTD?"
    " grad_y:BTD? grad_h:BD? grad_c:BD? dx:BTX? du:BTX? dh:BD? dc:BD? kind:int"
)
_forward = kernel("gated_cell", _SIGNATURE)
_backward = kernel("gated_cell_backward", _SIGNATURE)
LSTM, GRU = 0, 4  # kinds, and 1 more where the gate is refined, 2 where tied; see EACH_CELL in gated_cells.cpp


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, U, b_n, h, c, lengths, ctx.kind, _ = inputs
    y, _, _, acts, extra = output
    ctx.save_for_backward(U, b_n, h, c, lengths, y, acts, extra)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, *_: Any) -> Any:
    U, b_n, h, c, lengths, y, acts, extra = ctx.saved_tensors
    given = (None if x is None else rows(x) for x in (grad_y, grad_h, grad_c))
    dx, du, dh, dc = torch.ops.longwave.gated_cell_backward(U, h, c, lengths, y, acts, extra, *given, ctx.kind)
    dU = db_n = None
    if ctx.kind < GRU:
        du = dx
    if ctx.needs_input_grad[1]:
        before = torch.cat([y.new_zeros(len(y), 1, y.shape[2]) if h is None else h[:, None], y[:, :-1]], 1)
        dU = linear(before.flatten(0, 1).t(), du.flatten(0, 1).t()).t()  # this way round oneDNN is faster
    if b_n is not None:
        db_n = du.unflatten(-1, (-1, len(b_n)))[:, :, 2].sum((0, 1))
    return dx, dU, db_n, None if h is None else dh, None if c is None else dc, None, None, None


@define(
    "gated_cell(Tensor gates, Tensor U, Tensor? b_n, Tensor? h, Tensor? c, Tensor? lengths, int kind,"
    " bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _keep,
    _gradients,
)
def forward(
    gates: Tensor, U: Tensor, b_n: Tensor | None, h: Tensor | None, c: Tensor | None, lengths: Tensor | None, kind: int,
    keep: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """With `keep`, also what the backward pass reads: writing it takes a quarter of the time."""
    B, T, D = *gates.shape[:2], U.shape[1]
    y, last_h, last_c = gates.new_empty(B, T, D), gates.new_empty(B, D), gates.new_empty(B, D)
    acts, extra = (gates.new_empty(shape if keep else (0,)) for shape in (gates.shape, y.shape))
    kept = (acts, extra) if keep else (None, None)
    _forward(gates, U, b_n, h, c, lengths, y, last_h, last_c, *kept, *[None] * 7, kind)
    return y, last_h, last_c, acts, extra


@define(
    "gated_cell_backward(Tensor U, Tensor? h, Tensor? c, Tensor? lengths, Tensor y, Tensor acts, Tensor extra,"
    " Tensor? grad_y, Tensor? grad_h, Tensor? grad_c, int kind) -> (Tensor, Tensor, Tensor, Tensor)"
)
def backward(
    U: Tensor, h: Tensor | None, c: Tensor | None, lengths: Tensor | None, y: Tensor, acts: Tensor, extra: Tensor,
    grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, kind: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    dx, du = y.new_empty(acts.shape), y.new_empty(acts.shape if kind >= GRU else (0,))
    dh, dc = (y.new_empty(y.shape[0], y.shape[2]) for _ in "hc")
    _backward(
        acts, U, None, h, c, lengths, y, None, None, acts, extra, grad_y, grad_h, grad_c,
        dx, du if kind >= GRU else None, dh, dc, kind,
    )  # fmt: skip
    return dx, du, dh, dc


def _long(x: Tensor, **_: Any) -> str:
    return "" if x.shape[1] > 4 else "few steps: packing the weights takes as long as they do"


def _over_time(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor | None, state: Sequence[Tensor | None],
    lengths: Tensor | None, kind: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    gates = linear(x, W, b)
    given = [None if s is None else rows(s.float()) for s in (gates, U, b_n, *state)]
    keep = torch.is_grad_enabled() and any(s is not None and s.requires_grad for s in given)
    lengths = None if lengths is None else lengths.long()
    y, h, c, _, _ = torch.ops.longwave.gated_cell(*given, lengths, kind, keep)
    return y.to(x.dtype), h.to(x.dtype), c.to(x.dtype)


@lstm.form("native", when=on_cpu, worth=_long)
def native_lstm(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, state: Cells | None = None, lengths: Tensor | None = None,
    refined: bool = False, tied: bool = False,
) -> tuple[Tensor, Cells | None]:  # fmt: skip
    y, h, c = _over_time(x, W, U, b, None, state or (None, None), lengths, LSTM + refined + 2 * tied)
    return y, None if state is None else (h, c)


@gru.form("native", when=on_cpu, worth=_long)
def native_gru(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    y, h, _ = _over_time(x, W, U, b, b_n, (state, None), lengths, GRU + (len(U) > 3 * len(b_n)))
    return y, None if state is None else h
