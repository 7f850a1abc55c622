"""Linear time-invariant state spaces: h' = A h + B u, y = C h, in continuous time, sampled.

    discretize    (A, B, dt) -> the discrete (A, B), dense, by zoh, bilinear, forward or backward Euler
    impulse       the states A^l B of a dense discrete system, by doubling; krylov, its kernel C A^l B
    vandermonde   the kernel K_l = Re sum_n c_n exp(l z_n) of a diagonal one
    lti           a diagonal system over time: h_t = exp(z) h_{t-1} + b u_t, y_t = Re sum_n c_n h_tn

The diagonal ops take z = log of the discrete A. As a convolution `lti` costs O(T log T); the recurrence is the form for
decoding, and the scan for steps that change over time.

Gu, Goel and Re 2022, eq. 3-5; Gu et al. 2022 (S4D), section 3.2. The powers of z are built by repeated squaring and
the kernel is one real product of two short tables, z^(Mi) and z^j: torch's complex exponential is scalar code, far
slower.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from longwave.errors import UserError, nearest
from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.fftconv import fftconv
from longwave.ops.precision import unrounded, wide
from longwave.ops.ragged import by_age, zero_pads
from longwave.ops.scan import linear_scan

METHODS = ("zoh", "bilinear", "forward", "backward")


def discretize(
    A: Inexact[Tensor, "*#d N N"], B: Inexact[Tensor, "*#d N I"], dt: float | Float[Tensor, "*#d"], method: str = "zoh"
) -> tuple[Inexact[Tensor, "... N N"], Inexact[Tensor, "... N I"]]:
    """The discrete system that holds, averages or extrapolates its input over a step of dt."""
    step = torch.as_tensor(dt, dtype=A.dtype, device=A.device)[..., None, None]
    one = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    if method == "zoh":  # exp([[A, B], [0, 0]] dt) = [[A', B'], [0, 1]]; A need not be invertible
        N = A.shape[-1]
        block = torch.cat([A * step, B * step], -1)
        block = torch.cat([block, torch.zeros_like(block[..., : B.shape[-1], :])], -2)
        held = torch.matrix_exp(block)
        return held[..., :N, :N], held[..., :N, N:]
    if method == "bilinear":
        half = A * (step / 2)
        return torch.linalg.solve(one - half, one + half), torch.linalg.solve(one - half, B * step)
    if method == "forward":
        return one + A * step, B * step
    if method == "backward":
        return torch.linalg.solve(one - A * step, one.expand_as(A)), torch.linalg.solve(one - A * step, B * step)
    raise UserError(f"unknown discretisation {method!r}: {nearest(method, METHODS)}")


def discretize_diagonal(
    A: Complex[Tensor, "*#d N"], dt: Float[Tensor, "*#d #N"], method: str = "zoh"
) -> tuple[Complex[Tensor, "..."], Complex[Tensor, "..."]]:
    """(z, gain) of a diagonal system: the discrete A is exp(z), the discrete B is gain times B."""
    if method == "zoh":
        z = A * dt
        return z, torch.expm1(z) / A
    if method == "bilinear":
        half = A * (dt / 2)
        return torch.log1p(half) - torch.log1p(-half), dt / (1 - half)
    raise UserError(f"unknown discretisation {method!r} of a diagonal system: {nearest(method, METHODS[:2])}")


@unrounded
def squarings(A: Float[Tensor, "*d N N"], most: int) -> list[Float[Tensor, "*d N N"]]:
    """A, A^2, A^4 ...: all that is needed for powers up to `most`."""
    squares = [A]
    while len(squares) < most.bit_length():
        squares.append(squares[-1] @ squares[-1])
    return squares


@unrounded
def impulse(squares: Sequence[Tensor], B: Float[Tensor, "*d N"], length: int) -> Float[Tensor, "*d N L"]:
    """A^l B for l < length, in columns, given the squarings of A: each doubles them."""
    columns = B[..., None]
    for power in squares[: (length - 1).bit_length()]:
        columns = torch.cat([columns, power @ columns], -1)
    return columns[..., :length]


@unrounded
def krylov(
    A: Float[Tensor, "*#d N N"], B: Float[Tensor, "*d N"], C: Float[Tensor, "*d N"], length: int
) -> Float[Tensor, "*d L"]:
    """K_l = C A^l B for l < length."""
    return torch.einsum("...n,...nl->...l", C, impulse(squarings(A, length), B, length))


@op
def vandermonde(c: Complex[Tensor, "*d N"], z: Complex[Tensor, "*d N"], length: int) -> Float[Tensor, "*d L"]:
    """K_l = Re sum_n c_n exp(l z_n) for l < length."""
    time = torch.arange(length, device=z.device)
    return (c[..., None] * torch.exp(z[..., None] * time)).real.sum(-2)


@vandermonde.samples
def vandermonde_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for length in (1, 2, 7, 100):
        z = make.complex(make.between(-0.5, -0.01, 3, 4), make.between(-3, 3, 3, 4))
        yield f"L={length}", dict(c=make.complex(make.normal(3, 4), make.normal(3, 4)), z=z, length=length)
    z = make.complex(make.between(-0.5, -0.01, 2, 3, 4), make.between(-3, 3, 2, 3, 4))
    yield "a system a row", dict(c=make.complex(make.normal(2, 3, 4), make.normal(2, 3, 4)), z=z, length=12)


@vandermonde.form("torch.powers", worth=lambda length, **_: "" if length > 4 else "a few taps")
@unrounded
def by_powers(c: Tensor, z: Tensor, length: int) -> Tensor:
    low, high = _powers(z, length)
    high = high * c[..., None, :]
    left, right = torch.cat([high.real, -high.imag], -1), torch.cat([low.real, low.imag], -1)
    return (left @ right.mT).flatten(-2)[..., :length]


@op
def lti(
    u: Float[Tensor, "B T D"],
    z: Complex[Tensor, "*t D N"],
    b: Complex[Tensor, "*t D N"],
    c: Complex[Tensor, "D N"],
    state: Float[Tensor, "B D N 2"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    direct: Float[Tensor, " D"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D N 2"] | None]:
    """z and b are [D, N], or [B, D, N] (a step size a row), or [B, T, D, N] (a step size a token). Returns y, to which
    `direct` adds the input a channel, and the last h where an initial one was given.
    """
    a, add = _steps(u, z, b, lengths)
    h = torch.zeros_like(add[:, 0]) if state is None else torch.view_as_complex(state)
    ys = []
    for at, bt in zip(a.unbind(1), add.unbind(1), strict=True):
        h = at * h + bt
        ys.append((c * h).real.sum(-1))
    y = torch.stack(ys, 1) if direct is None else torch.stack(ys, 1) + direct * u
    return y.to(u.dtype), None if state is None else torch.view_as_real(h)


@lti.samples
def lti_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def system(*lead: int) -> dict[str, Any]:
        z = make.complex(make.between(-0.5, -0.01, *lead, 3, 4), make.between(-3, 3, *lead, 3, 4))
        b = make.complex(make.normal(*lead, 3, 4), make.normal(*lead, 3, 4))
        return dict(z=z, b=b, c=make.complex(make.normal(3, 4), make.normal(3, 4)))

    for T in (1, 2, 7, 40):
        yield f"T={T}", dict(u=make.normal(2, T, 3), **system(), state=make.normal(2, 3, 4, 2))
    yield "from zero", dict(u=make.normal(2, 40, 3), **system(), direct=make.normal(3))
    yield (
        "a skip and a state",
        dict(u=make.normal(2, 9, 3), **system(), state=make.normal(2, 3, 4, 2), direct=make.normal(3)),
    )
    lengths = torch.tensor([0, 40, 17])
    for name, lead in (("one step", ()), ("a step a row", (3,)), ("a step a token", (3, 40))):
        yield (
            f"ragged, {name}",
            dict(u=make.normal(3, 40, 3), **system(*lead), state=make.normal(3, 3, 4, 2), lengths=lengths),
        )


def _steady(z: Tensor, **_: Any) -> str:
    return "the step size changes over time" if z.ndim == 4 else ""


def _long(u: Tensor, **_: Any) -> str:
    return "" if u.shape[1] > 8 else "few steps: the recurrence is faster"


@lti.form("torch.convolution", when=_steady, worth=_long)
def as_convolution(
    u: Tensor, z: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None, lengths: Tensor | None = None,
    direct: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    T = u.shape[1]
    taps = vandermonde(c * b, z, T)
    if direct is not None:  # one more thing that the first tap does
        taps = taps + F.pad(direct[:, None], (0, T - 1))
    y = fftconv(u, taps.mT)
    if state is None:
        return y, None
    h = torch.view_as_complex(state.contiguous())
    y = y + vandermonde(c * z.exp() * h, z.expand_as(h), T).mT.to(u.dtype)
    return y, torch.view_as_real(_final(u, z, b, h, lengths))


@lti.form("torch.scan", worth=_long)
def as_scan(
    u: Tensor, z: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None, lengths: Tensor | None = None,
    direct: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    a, add = _steps(u, z, b, lengths)
    h, last = linear_scan(a, add, None if state is None else torch.view_as_complex(state.contiguous()))
    y = (c * h).real.sum(-1) if direct is None else (c * h).real.sum(-1) + direct * u
    return y.to(u.dtype), None if last is None else torch.view_as_real(last)


def _steps(u: Tensor, z: Tensor, b: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """exp(z) and b u for every token, [B, T, D, N]; the identity in pads."""
    if z.ndim == 3:
        z, b = z[:, None], b[:, None]
    a = z.exp().expand(*u.shape, z.shape[-1])
    add = b * u[..., None]
    if lengths is None:
        return a, add
    return zero_pads(a, lengths, fill=1.0), zero_pads(add, lengths)


@unrounded
def _final(u: Tensor, z: Tensor, b: Tensor, h: Tensor, lengths: Tensor | None) -> Tensor:
    """exp(n z) h + b sum_t exp((n - 1 - t) z) u_t, with n the row's own length."""
    T = u.shape[1]
    n = T if lengths is None else lengths[:, None, None]
    low, high = _powers(z, T)
    M, many = low.shape[-2], high.shape[-2]
    aged = F.pad(wide(by_age(u, lengths)), (0, 0, 0, M * many - T)).transpose(1, 2).unflatten(2, (many, M))
    sums = torch.complex(aged @ low.real, aged @ low.imag)  # [B, D, many, N]
    return torch.exp(z * n) * h + b * (sums * high).sum(-2)


def _powers(z: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Tables exp(j z), j < M, and exp(M i z), [..., M, N] and [..., many, N]: together all powers below `length`."""
    M = 1 << max(0, math.ceil(math.log2(length) / 2))
    return _table(z, M), _table(z * M, -(-length // M))


def _table(z: Tensor, count: int) -> Tensor:
    table = torch.ones_like(z)[..., None, :]
    power = z.exp()[..., None, :]
    while table.shape[-2] < count:
        table = torch.cat([table, table * power], -2)
        power = power * power
    return table[..., :count, :]
