"""minGRU, forwards and backwards."""

import math
from typing import Any

import torch
from torch import Tensor

from longwave.ops.min_gru import min_gru
from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.ops.ragged import zero_pads

_forward = kernel("min_gru", "gate:BTD candidate:BTD first:BD? every:BTD last:BD")
_backward = kernel(
    "min_gru_backward",
    "gate:BTD candidate:BTD every:BTD first:BD? grad_every:BTD? grad_last:BD?"
    " grad_gate:BTD grad_candidate:BTD grad_first:BD",
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    gate, candidate, first = inputs
    ctx.save_for_backward(gate, candidate, output[0], first)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, *grads: Tensor | None) -> Any:
    grads = tuple(None if g is None else rows(g) for g in grads)
    *found, grad_first = torch.ops.longwave.min_gru_backward(*ctx.saved_tensors, *grads)
    return *found, None if ctx.saved_tensors[3] is None else grad_first


@define("min_gru(Tensor gate, Tensor candidate, Tensor? first) -> (Tensor, Tensor)", _keep, _gradients)
def forward(gate: Tensor, candidate: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    every, last = gate.new_empty(gate.shape), gate.new_empty(gate.shape[0], gate.shape[2])
    _forward(gate, candidate, first, every, last)
    return every, last


@define(
    "min_gru_backward(Tensor gate, Tensor candidate, Tensor every, Tensor? first, Tensor? grad_every,"
    " Tensor? grad_last) -> (Tensor, Tensor, Tensor)"
)
def backward(
    gate: Tensor, candidate: Tensor, every: Tensor, first: Tensor | None, grad_every: Tensor | None,
    grad_last: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grad_gate, grad_candidate = every.new_empty(every.shape), every.new_empty(every.shape)
    grad_first = every.new_empty(every.shape[0], every.shape[2])
    _backward(gate, candidate, every, first, grad_every, grad_last, grad_gate, grad_candidate, grad_first)
    return grad_gate, grad_candidate, grad_first


@min_gru.form("native", when=on_cpu)
def native(
    gate: Tensor, candidate: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    shut = zero_pads(gate.float(), lengths, fill=-math.inf)  # at pads the gate stays shut
    first = None if state is None else rows(state.float())
    every, last = torch.ops.longwave.min_gru(rows(shut), rows(candidate.float()), first)
    return every.to(gate.dtype), None if state is None else last
