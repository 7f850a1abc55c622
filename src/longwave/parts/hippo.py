"""HiPPO: a history as the coefficients of orthogonal polynomials, kept up to date by a linear system c' = A c + B f.

    legs   Legendre polynomials on all of [0, t], weighed alike:       c' = (A c + B f) / t
    legt   Legendre polynomials on the window [t - theta, t]:          c' = (A c + B f) / theta
    lmu    the same, scaled as in the Legendre memory unit:            c_n = (-1)^n sqrt(2n + 1) times that of legt
    lagt   Laguerre polynomials, the past decaying as exp(-age/theta): c' = (A c + B f) / theta

    transition       A and B
    basis            the polynomials, at an age
    project          f -> c at every step: c_k = A_k c_{k-1} + B_k f_k
    reconstruct      c -> f at an age
    nplr             legs = V (Lambda - P P*) V*, as S4 wants it
    diagonal_poles   what diagonal state spaces start from

Ages are in units of theta, for legs of t. Gu et al. 2020 (HiPPO), theorems 1 and 2, appendix D; Voelker, Kajic and
Eliasmith 2019 (LMU), eq. 2; Gu, Goel and Re 2022 (S4), theorem 1 and appendix C.1, with Q = P.
"""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from longwave.errors import choose
from longwave.ops.lti import discretize

CHUNK = 64  # steps whose matrices are made at once


def transition(measure: str, n: int) -> tuple[Float[Tensor, "N N"], Float[Tensor, " N"]]:
    """A and B in float64, for theta = 1 (for legs, at t = 1)."""
    i = torch.arange(n, dtype=torch.float64)
    root, sign = (2 * i + 1).sqrt(), (-1) ** i
    lower, ones = i[:, None] >= i, torch.ones(n, n, dtype=torch.float64)
    signs = sign[:, None] * sign
    table = {
        "legs": lambda: (-torch.outer(root, root).tril(-1) - torch.diag(i + 1), root),
        "legt": lambda: (-torch.outer(root, root) * torch.where(lower, ones, signs), root),
        "lmu": lambda: (-(2 * i + 1)[:, None] * torch.where(lower, signs, ones), (2 * i + 1) * sign),
        "lagt": lambda: (-ones.tril(), ones[0]),
    }
    return choose("measure", measure, table)()


def basis(measure: str, n: int, age: Float[Tensor, "*p"]) -> Float[Tensor, "*p N"]:
    """The first n polynomials at each age: f(age) is about their sum weighed by c."""
    i = torch.arange(n, dtype=age.dtype, device=age.device)
    x = 1 - 2 * age
    below, value = torch.zeros_like(age), torch.ones_like(age)
    values = []
    for k in range(n):
        values.append(value)
        rise = (2 * k + 1 - age) if measure == "lagt" else (2 * k + 1) * x
        below, value = value, (rise * value - k * below) / (k + 1)
    scale = {"legs": (2 * i + 1).sqrt(), "legt": (2 * i + 1).sqrt(), "lmu": (-1) ** i, "lagt": torch.ones_like(i)}
    return torch.stack(values, -1) * choose("measure", measure, scale)


def relative_steps(
    measure: str, dt: Float[Tensor, "#B T"], since: Float[Tensor, " #B"], theta: float
) -> Float[Tensor, "#B T"]:
    """Each step as the system sees it: relative to the window, for legs to all time gone by at its end."""
    if measure != "legs":
        return dt / theta
    return dt / (since[:, None] + dt.cumsum(1)).clamp_min(torch.finfo(dt.dtype).tiny)  # a first step of 0 is none


def project(
    f: Float[Tensor, "B T"], measure: str, n: int, *, dt: float = 1.0, theta: float = 1.0, method: str = "bilinear"
) -> Float[Tensor, "B T N"]:
    """The coefficients after every sample, one step of the recurrence each."""
    A, B = (x.to(f) for x in transition(measure, n))
    steps = relative_steps(measure, torch.full_like(f[:1], dt), torch.zeros_like(f[:1, 0]), theta)[0]
    c, every = f.new_zeros(len(f), n), []
    for samples, some in zip(f.split(CHUNK, 1), steps.split(CHUNK), strict=True):
        discrete = discretize(A, B[:, None], some, method)
        for ft, At, Bt in zip(samples.unbind(1), *(x.unbind(0) for x in discrete), strict=True):
            c = c @ At.mT + ft[:, None] * Bt[:, 0]
            every.append(c)
    return torch.stack(every, 1)


def reconstruct(c: Float[Tensor, "*b N"], measure: str, age: Float[Tensor, " P"]) -> Float[Tensor, "*b P"]:
    return c @ basis(measure, c.shape[-1], age.to(c)).mT


def nplr(n_pairs: int) -> tuple[Complex[Tensor, " N"], Complex[Tensor, " N"], Complex[Tensor, " N"]]:
    """(Lambda, P, B) of legs in the basis where A + P P^T, normal, is diagonal; one of each conjugate pair."""
    A, B = transition("legs", 2 * n_pairs)
    P = (torch.arange(2 * n_pairs, dtype=torch.float64) + 0.5).sqrt()
    normal = A + torch.outer(P, P)  # -1/2 on the diagonal, else antisymmetric
    frequency, V = torch.linalg.eigh((normal - normal.diagonal().diag()) * -1j)
    V = V[:, n_pairs:].mH
    return torch.complex(normal.diagonal()[:n_pairs], frequency[n_pairs:]), V @ P.to(V), V @ B.to(V)


def diagonal_poles(kind: str, n_pairs: int) -> Complex[Tensor, " N"]:
    """One of each conjugate pair; n counts these.

    lin    -1/2 + i pi n                         an inverse Fourier basis of the window
    inv    -1/2 + i N/pi (N / (2n + 1) - 1)      closer to legs, its fastest poles faster
    legs   the normal part of the HiPPO matrix   what lin and inv approximate
    real   -(n + 1)                              no oscillation

    Gu et al. 2022 (S4D), eq. 9 and 10, section 4.
    """
    n = torch.arange(n_pairs, dtype=torch.float64)
    N = 2 * n_pairs
    table = {
        "lin": lambda: torch.complex(torch.full_like(n, -0.5), math.pi * n),
        "inv": lambda: torch.complex(torch.full_like(n, -0.5), N / math.pi * (N / (2 * n + 1) - 1)),
        "legs": lambda: nplr(n_pairs)[0],
        "real": lambda: torch.complex(-(n + 1), torch.zeros_like(n)),
    }
    return choose("poles", kind, table)()
