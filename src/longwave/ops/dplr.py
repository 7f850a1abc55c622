"""S4's state space: a diagonal matrix minus one of rank one, A = Lambda - P P*, sampled by the bilinear rule.

    h_t = (1 - dt/2 A)^-1 ((1 + dt/2 A) h_{t-1} + dt B u_t)          y_t = C h_t

The N numbers given are one of each conjugate pair, so that C h means 2 Re(C h). One step costs O(N) by Woodbury's
identity: with S = (1 - dt/2 Lambda)^-1, (1 - dt/2 A)^-1 = S - S P (2/dt + P* S P)^-1 P* S.

The kernel K_l = C A'^l B', l < L, of the discrete A' and B' is the inverse FFT of its generating function at the roots
of unity exp(i t). With D = -(cos(t/2) Lambda + 2i/dt sin(t/2))^-1 and C~ = C (1 - A'^L),

    K^(t) = exp(-i t/2) (C~ D B - cos(t/2) C~ D P (1 + cos(t/2) P* D P)^-1 P* D B)

four sums over poles (Cauchy products), O(N L); A'^L takes log L squarings of a dense matrix. The paper divides by
1 + exp(i t), which is zero at t = pi; written so, nothing does, and a pair of poles needs real numbers only.

Gu, Goel and Re 2022, section 3.3 and appendix C.3; P = Q as in Goel et al. 2022, section 4.2, which keeps A stable.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from longwave.ops.cases import Make
from longwave.ops.dense_lti import final_state, free_output, power
from longwave.ops.dispatch import op
from longwave.ops.fftconv import fftconv
from longwave.ops.lti import impulse, squarings
from longwave.ops.precision import wide

CHUNK = 1 << 18  # poles times frequencies at once: tables that fit into a cache


@op
def dplr(
    u: Float[Tensor, "B T D"],
    dt: Float[Tensor, "*t D"],
    poles: Complex[Tensor, "D N"],
    P: Complex[Tensor, "D N"],
    B: Complex[Tensor, "D N"],
    C: Complex[Tensor, "D N"],
    state: Float[Tensor, "B D N 2"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D N 2"] | None]:
    """dt is [D], or [B, D] (a step size a row), or [B, T, D] (a step size a token). Returns y, and the last h where an
    initial one was given.
    """
    changes = dt.ndim == 3
    h = poles.new_zeros(len(u), *poles.shape) if state is None else torch.view_as_complex(state)
    parts = (x.unbind(1) if changes else [x] * u.shape[1] for x in (*_woodbury(dt, poles, P), dt[..., None] * B))
    ys = []
    for t, (solve, rank_one, drive, ut) in enumerate(zip(*parts, wide(u).unbind(1), strict=True)):
        new = _advance(h, solve, rank_one, P, drive * ut[..., None])
        h = new if lengths is None else torch.where((t < lengths)[:, None, None], new, h)
        ys.append(2 * (C * h).real.sum(-1))
    return torch.stack(ys, 1).to(u.dtype), None if state is None else torch.view_as_real(h)


@dplr.samples
def dplr_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def system(*lead: int) -> dict[str, Any]:
        def draw() -> Tensor:
            return make.complex(make.normal(3, 4), make.normal(3, 4))

        poles = make.complex(make.between(-1, -0.1, 3, 4), make.between(0, 6, 3, 4))
        return dict(dt=make.between(0.1, 0.5, *lead, 3), poles=poles, P=draw(), B=draw(), C=draw())

    for T in (1, 2, 7, 40):
        yield f"T={T}", dict(u=make.normal(2, T, 3), **system(), state=make.normal(2, 3, 4, 2))
    yield "from zero", dict(u=make.normal(2, 33, 3), **system())
    lengths = torch.tensor([0, 40, 17])
    for name, lead in (("one step", ()), ("a step a row", (3,)), ("a step a token", (3, 40))):
        yield (
            f"ragged, {name}",
            dict(u=make.normal(3, 40, 3), **system(*lead), state=make.normal(3, 3, 4, 2), lengths=lengths),
        )


def _steady(dt: Tensor, **_: Any) -> str:
    return "the step size changes over time" if dt.ndim == 3 else ""


def _long(u: Tensor, **_: Any) -> str:
    return "" if u.shape[1] > 8 else "few steps: the recurrence is faster"


@dplr.form("torch.convolution", when=_steady, worth=_long)
def as_convolution(
    u: Tensor, dt: Tensor, poles: Tensor, P: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    kernel, squares, b = _from_cauchy(dt, poles, P, B, C, u.shape[1])
    y = fftconv(wide(u), kernel.mT)
    if state is None:
        return y.to(u.dtype), None
    h, squares = state.flatten(-2), [A.to(dt.dtype) for A in squares]
    y = y + free_output(squares, _real(C.conj() * 2), h, u.shape[1])
    h = final_state(u, squares, impulse(squares, b.to(dt.dtype), u.shape[1]), h, lengths)
    return y.to(u.dtype), h.unflatten(-1, (-1, 2))


dplr.form("torch.recurrence")(dplr.reference)  # no faster form is known for a step size a token


def dplr_kernel(
    dt: Float[Tensor, "*t D"],
    poles: Complex[Tensor, "D N"],
    P: Complex[Tensor, "D N"],
    B: Complex[Tensor, "D N"],
    C: Complex[Tensor, "D N"],
    length: int,
) -> Float[Tensor, "*t D L"]:
    """K_l = C A'^l B' for l < length."""
    return _from_cauchy(dt, poles, P, B, C, length)[0]


def discrete(
    dt: Float[Tensor, "*t D"], poles: Complex[Tensor, "D N"], P: Complex[Tensor, "D N"], B: Complex[Tensor, "D N"]
) -> tuple[Float[Tensor, "*t D N2 N2"], Float[Tensor, "*t D N2"]]:
    """The discrete A and B as real matrices, on the real and imaginary part of each number in turn."""
    N = poles.shape[-1]
    solve, rank_one = _woodbury(dt, poles, P)
    unit = torch.view_as_complex(torch.eye(2 * N, dtype=dt.dtype, device=dt.device).unflatten(1, (N, 2)))
    columns = _advance(unit.view(2 * N, *[1] * dt.ndim, N), solve, rank_one, P, torch.zeros_like(solve))
    b = _advance(torch.zeros_like(solve), solve, rank_one, P, dt[..., None] * B)
    return _real(columns).movedim(0, -1), _real(b)


def _woodbury(dt: Tensor, poles: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """S, and dt S P / (1 + dt/2 P* S P), both [*t, D, N]."""
    solve = 1 / (1 - dt[..., None] / 2 * poles)
    weight = dt / (1 + dt * (P.abs().square() * solve.real).sum(-1))
    return solve, weight[..., None] * solve * P


def _advance(h: Tensor, solve: Tensor, rank_one: Tensor, P: Tensor, drive: Tensor) -> Tensor:
    """One step, with (1 - dt/2 A)^-1 (1 + dt/2 A) = 2 (1 - dt/2 A)^-1 - 1."""
    x = solve * (2 * h + drive)
    seen = (P.real * x.real + P.imag * x.imag).sum(-1, keepdim=True)
    return x - rank_one * seen - h


def _from_cauchy(
    dt: Tensor, poles: Tensor, P: Tensor, B: Tensor, C: Tensor, length: int
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The kernel, and what it came from: the squarings of the discrete A, and B.

    In float64: of the gradient of dt, what comes through alpha and what comes through A'^L nearly cancel.
    """
    kind, dt = dt.dtype, dt.double()
    poles, P, B, C = (x.to(torch.complex128) for x in (poles, P, B, C))
    A, b = discrete(dt, poles, P, B)
    squares, row = squarings(A, length), _real(C.conj() * 2).expand(b.shape)
    row = (row - power([each.mT for each in squares], row, length)).unflatten(-1, (-1, 2))
    C = torch.complex(row[..., 0], -row[..., 1]) / 2  # C (1 - A'^L)
    angle = torch.arange(length // 2 + 1, dtype=dt.dtype, device=dt.device) * (-2 * math.pi / length)
    some = angle.split(max(1, CHUNK // (dt.numel() * poles.shape[-1])))
    one = _spectrum
    if torch.is_grad_enabled() and len(some) > 1:  # made anew in the backward pass, so that memory holds one chunk
        one = functools.partial(checkpoint, _spectrum, use_reentrant=False, preserve_rng_state=False)
    spectrum = torch.cat([one(each, dt, poles, P, B, C) for each in some], -1)
    return torch.fft.irfft(spectrum, length).to(kind), squares, b


def _spectrum(angle: Tensor, dt: Tensor, poles: Tensor, P: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The generating function at exp(i angle), a pair of poles at a time; C stands for C (1 - A'^L)."""
    sin, cos = torch.sin(angle / 2), torch.cos(angle / 2)
    x, turn, own = -poles.real[..., None] * cos, 2 * sin / dt[..., None, None], poles.imag[..., None] * cos
    upper, lower = turn + own, turn - own
    a, b = 1 / (x * x + upper * upper), 1 / (x * x + lower * lower)  # [*t, D, N, frequencies]
    v = torch.stack(torch.broadcast_tensors(C * B, C * P, P.conj() * B, P.conj() * P), -2)
    real = v.real @ (x * (a + b)) - v.imag @ (upper * a - lower * b)
    imag = v.real @ (upper * a + lower * b) + v.imag @ (x * (a - b))
    CB, CP, PB, PP = torch.complex(real, imag).unbind(-2)
    return torch.polar(torch.ones_like(angle), -angle / 2) * (CB - cos * CP * PB / (1 + cos * PP))


def _real(z: Tensor) -> Tensor:
    return torch.view_as_real(z.resolve_conj()).flatten(-2)
