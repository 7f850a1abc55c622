"""Softmax attention in tiles, and among listed keys: linear memory, dropout drawn again in the backward pass."""

from typing import Any

import torch
from torch import Tensor

from longwave.ops.attention import Pattern, Score, _positions, attention
from longwave.ops.native.bind import define, kernel, on_cpu, rows
from longwave.record import is_recording

_KEEP_ALL = 1 << 24  # weights are kept in 2^24ths
_INPUTS = (
    "q:BTHK k:BSGK v:BSGV q_pos:PT/int64 k_pos:QS/int64 lists:LNJ/int64? slopes:H?"
    " scale:float causal:int window:int block:int first:int seed:int keep:int y:BTHV log_sum:BHT"
)
_forward = kernel("attention", _INPUTS)
_backward = kernel("attention_backward", f"{_INPUTS} dy:BTHV dq:BTHK dk:CSGK dv:CSGV")
_SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor q_pos, Tensor k_pos, Tensor? lists, Tensor? slopes, float scale, int causal,"
    " int window, int block, int first, Tensor? seed, int keep"
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, seed, ctx.keep = inputs
    ctx.save_for_backward(*tensors[:7], seed, *output)
    ctx.numbers = tensors[7:]


def _gradients(ctx: Any, grad_y: Tensor, _: Tensor) -> Any:
    *inputs, seed, y, log_sum = ctx.saved_tensors
    found = torch.ops.longwave.attention_backward(*inputs, *ctx.numbers, seed, ctx.keep, y, log_sum, rows(grad_y))
    return *found, *[None] * 11


@define(f"attention({_SCHEMA}) -> (Tensor, Tensor)", _keep, _gradients)
def forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    *between, seed, keep = given
    y = q.new_empty(*q.shape[:3], v.shape[3])
    log_sum = q.new_empty(q.shape[0], q.shape[2], q.shape[1])
    _forward(q, k, v, *between, _number(seed), keep, y, log_sum)
    return y, log_sum


@define(
    f"attention_backward({_SCHEMA}, Tensor y, Tensor log_sum, Tensor grad_y) -> (Tensor, Tensor, Tensor)",
)
def backward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *between, seed, keep, y, log_sum, dy = given
    copies = -(-torch.get_num_threads() // (k.shape[0] * k.shape[2]))
    dq, dk, dv = q.new_empty(q.shape), *(x.new_zeros(copies * len(x), *x.shape[1:]) for x in (k, v))
    _backward(q, k, v, *between, _number(seed), keep, y, log_sum, dy, dq, dk, dv)
    if copies > 1:
        dk, dv = dk.view(copies, *k.shape).sum(0), dv.view(copies, *v.shape).sum(0)
    return dq, dk, dv


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None or torch._subclasses.fake_tensor.is_fake(seed) else int(seed)


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, q_pos: Tensor, k_pos: Tensor, lists: Tensor | None,
    scale: float | None, dropout: float,
) -> Tensor:  # fmt: skip
    wide = (rows(x.float()) for x in (q, k, v))
    slopes = None if pattern.slopes is None else rows(pattern.slopes.float())
    keep = _KEEP_ALL - round(dropout * _KEEP_ALL)
    seed = torch.randint(1 << 31, ()) if keep < _KEEP_ALL else None
    numbers = (int(pattern.causal), pattern.window or 0, pattern.block or 0, pattern.first)
    places = (rows(x.long()) for x in (q_pos, k_pos))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    y, _ = torch.ops.longwave.attention(*wide, *places, lists, slopes, scale, *numbers, seed, keep)
    return y.to(v.dtype)


def can_attend(pattern: Pattern, dropout: float, *tensors: Tensor) -> str:
    if is_recording():
        return "the weights are being recorded"
    if pattern.mask is not None or pattern.table is not None:
        return "it knows no mask and no learned bias"
    if pattern.around:
        return "it knows no blocks around one's own"
    if pattern.slopes is not None and pattern.slopes.requires_grad:
        return "it gives slopes no gradient"
    return "dropout leaves nothing" if dropout >= 1 else on_cpu(tensors=tensors)


def _when(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    k_pos: Tensor | None = None, scale: float | None = None, dropout: float = 0.0, score: Score | None = None,
) -> str:  # fmt: skip
    return "the score is not a dot product" if score is not None else can_attend(pattern, dropout, q, k, v)


def _worth(q: Tensor, **_: Any) -> str:
    if torch.is_grad_enabled() and q.requires_grad:  # torch's backward pass takes longer, however few they are
        return ""
    return "" if q.shape[1] >= 16 else "few queries"


@attention.form("native", when=_when, worth=_worth)
def native(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern = Pattern(), q_pos: Tensor | None = None,
    k_pos: Tensor | None = None, scale: float | None = None, dropout: float = 0.0, score: Score | None = None,
) -> Tensor:  # fmt: skip
    return attend(q, k, v, pattern, *_positions(q, k, q_pos, k_pos), None, scale, dropout)
