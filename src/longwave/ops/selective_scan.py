"""Mamba's scan: a diagonal state space whose step size, input and output depend on the token.

    h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t x_t          Delta_t = softplus(dt_t)
    y_t = C_t h_t + D x_t, times silu(z_t) where there is a gate

A [D, N] is negative; h is [D, N], one small state a channel. Delta = 0 (dt = -inf) is the identity.

The chunked form computes the states of a chunk of time at once by `linear_scan` and recomputes them in the backward
pass, so that memory holds one chunk of [T, D, N] numbers instead of all.

Gu and Dao 2023, section 3.2 and Algorithm 2 (the input is discretised by Delta B, as in the authors' code).
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.ops.scan import linear_scan

CHUNK = 64


@op
def selective_scan(
    x: Float[Tensor, "B T D"],
    dt: Float[Tensor, "B T D"],
    A: Float[Tensor, "D N"],
    B: Float[Tensor, "B T N"],
    C: Float[Tensor, "B T N"],
    D: Float[Tensor, " D"] | None = None,
    z: Float[Tensor, "B T D"] | None = None,
    state: Float[Tensor, "B D N"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D N"] | None]:
    """Returns y, and the last h where an initial one was given."""
    u, B, C = wide(x), wide(B), wide(C)
    delta = zero_pads(F.softplus(wide(dt)), lengths)
    h = u.new_zeros(len(x), *A.shape) if state is None else state
    ys = []
    for xt, step, Bt, Ct in zip(u.unbind(1), delta.unbind(1), B.unbind(1), C.unbind(1), strict=True):
        h = torch.exp(step[..., None] * A) * h + (step * xt)[..., None] * Bt[:, None]
        ys.append((h * Ct[:, None]).sum(-1))
    return _out(torch.stack(ys, 1), x, D, z), None if state is None else h


@selective_scan.samples
def selective_scan_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(B: int, T: int, D: int, N: int) -> dict[str, Any]:
        return dict(
            x=make.normal(B, T, D), dt=make.normal(B, T, D), A=make.between(-3, -0.1, D, N),
            B=make.normal(B, T, N), C=make.normal(B, T, N),
        )  # fmt: skip

    for T in (1, 2, 7, 150):
        yield f"T={T}", dict(**inputs(2, T, 3, 4), state=make.normal(2, 3, 4))
    yield "skip and gate", dict(**inputs(1, 70, 5, 2), D=make.normal(5), z=make.normal(1, 70, 5))
    lengths = torch.tensor([0, 70, 33])
    yield "ragged", dict(**inputs(3, 70, 2, 3), z=make.normal(3, 70, 2), state=make.normal(3, 2, 3), lengths=lengths)


@selective_scan.form("torch.chunked", worth=lambda x, **_: "" if x.shape[1] > 8 else "few steps: the loop is faster")
def chunked(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, z: Tensor | None = None,
    state: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    delta = zero_pads(F.softplus(wide(dt)), lengths)
    h = delta.new_zeros(len(x), *A.shape) if state is None else state
    ys = []
    one = _one_chunk
    if torch.is_grad_enabled() and x.shape[1] > CHUNK:
        one = functools.partial(checkpoint, _one_chunk, use_reentrant=False, preserve_rng_state=False)
    pieces = (t.split(CHUNK, 1) for t in (wide(x), delta, wide(B), wide(C)))
    for u, step, Bt, Ct in zip(*pieces, strict=True):
        y, h = one(u, step, Bt, Ct, A, h)
        ys.append(y)
    return _out(torch.cat(ys, 1), x, D, z), None if state is None else h


def _one_chunk(x: Tensor, delta: Tensor, B: Tensor, C: Tensor, A: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    decay = torch.exp(delta[..., None] * A)
    every, last = linear_scan(decay, (delta * x)[..., None] * B[:, :, None], h)
    assert last is not None
    return (every @ C[..., None])[..., 0], last


def _out(y: Tensor, x: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    if D is not None:
        y = y + D * x
    return (y if z is None else y * F.silu(z)).to(x.dtype)
