"""A state space whose matrix has no structure to exploit: h_t = A h_{t-1} + b u_t, y_t = c . h_t, channel by channel.

A, b are [D, N, N] and [D, N], one of each for all channels where the first axis is 1; [B, D, ...] where rows differ (a
step size a row), [B, T, D, ...] where tokens do. They are discrete already (see ops.lti.discretize). Without c, y is h.

As a convolution it costs O(N^2 T) products for the impulse response, built by doubling, and O(T log T) for the FFT;
the recurrence is the form for decoding, and for steps that change. Gu et al. 2021 (LSSL), section 3.1; Chilkuri and
Eliasmith 2021 (LMU-FFT), section 3.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.fftconv import fftconv
from longwave.ops.lti import impulse, squarings
from longwave.ops.precision import wide
from longwave.ops.ragged import by_age


@op
def dense_lti(
    u: Float[Tensor, "B T D"],
    A: Float[Tensor, "*t #D N N"],
    b: Float[Tensor, "*t #D N"],
    c: Float[Tensor, "D N"] | None = None,
    state: Float[Tensor, "B D N"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T D"] | Float[Tensor, "B T D N"], Float[Tensor, "B D N"] | None]:
    """Returns y (all h where c is None), and the last h where an initial one was given."""
    T, changes = u.shape[1], A.ndim == 5
    h = wide(u).new_zeros(len(u), u.shape[2], A.shape[-1]) if state is None else state
    steps = zip(*(x.unbind(1) if changes else [x] * T for x in (A, b)), wide(u).unbind(1), strict=True)
    every = []
    for t, (At, bt, ut) in enumerate(steps):
        new = torch.einsum("...ij,...j->...i", At, h) + bt * ut[..., None]
        h = new if lengths is None else torch.where((t < lengths)[:, None, None], new, h)
        every.append(h)
    hs = torch.stack(every, 1)
    return (hs if c is None else (hs * c).sum(-1)).to(u.dtype), None if state is None else h


@dense_lti.samples
def dense_lti_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def system(*lead: int) -> dict[str, Any]:
        return dict(A=make.between(-0.4, 0.4, *lead, 4, 4), b=make.normal(*lead, 4))

    for T in (1, 2, 7, 40):
        yield f"T={T}", dict(u=make.normal(2, T, 3), **system(3), c=make.normal(3, 4), state=make.normal(2, 3, 4))
    yield "from zero", dict(u=make.normal(2, 40, 3), **system(3), c=make.normal(3, 4))
    yield "one system, all states", dict(u=make.normal(2, 40, 3), **system(1), state=make.normal(2, 3, 4))
    lengths = torch.tensor([0, 40, 17])
    for name, lead in (("one step", (2,)), ("a step a row", (3, 2)), ("a step a token", (3, 40, 2))):
        state = make.normal(3, 2, 4)
        yield f"ragged, {name}", dict(u=make.normal(3, 40, 2), **system(*lead), c=make.normal(2, 4),
                                      state=state, lengths=lengths)  # fmt: skip
        yield f"ragged states, {name}", dict(u=make.normal(3, 40, 2), **system(*lead), state=state, lengths=lengths)


def _steady(A: Tensor, **_: Any) -> str:
    return "the step size changes over time" if A.ndim == 5 else ""


def _long(u: Tensor, **_: Any) -> str:
    return "" if u.shape[1] > 8 else "few steps: the recurrence is faster"


@dense_lti.form("torch.convolution", when=_steady, worth=_long)
def as_convolution(
    u: Tensor, A: Tensor, b: Tensor, c: Tensor | None = None, state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    T, D, N = u.shape[1], u.shape[2], A.shape[-1]
    squares = squarings(A, T)
    response = impulse(squares, b, T)
    if c is None:
        kernel = response.expand(*response.shape[:-3], D, N, T).flatten(-3, -2)
        y = fftconv(wide(u).repeat_interleave(N, 2), kernel.mT).unflatten(2, (D, N))
    else:
        y = fftconv(wide(u), torch.einsum("...dnl,...dn->...ld", response, c))
    if state is None:
        return y.to(u.dtype), None
    if c is None:
        y = y + impulse(squares, power(squares, state, 1), T).permute(0, 3, 1, 2)
    else:
        y = y + free_output(squares, c, state, T)
    return y.to(u.dtype), final_state(u, squares, response, state, lengths)


dense_lti.form("torch.recurrence")(dense_lti.reference)  # no faster form is known for a step size a token


def free_output(
    squares: Sequence[Tensor], c: Float[Tensor, "D N"], h: Float[Tensor, "B D N"], length: int
) -> Float[Tensor, "B T D"]:
    """c A^t h for t = 1 ... length: what the past says when nothing more comes in."""
    backwards = [A.mT for A in squares]
    c = c.expand(*squares[0].shape[:-3], *c.shape)
    return torch.einsum("...dnt,...dn->...td", impulse(backwards, power(backwards, c, 1), length), h)


def final_state(
    u: Float[Tensor, "B T D"],
    squares: Sequence[Tensor],
    response: Float[Tensor, "*t #D N T"],
    h: Float[Tensor, "B D N"],
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B D N"]:
    """h after each row's own last token, and nothing in between: one product with the impulse response A^l b."""
    added = torch.einsum("...dnt,...td->...dn", response, wide(by_age(u, lengths)))
    return added + power(squares, h, u.shape[1] if lengths is None else lengths)


def power(squares: Sequence[Tensor], h: Float[Tensor, "*d N"], n: int | Int[Tensor, " B"]) -> Float[Tensor, "*d N"]:
    """A^n h from the squarings of A; n may differ between rows."""
    for bit, A in enumerate(squares):
        if isinstance(n, Tensor):
            here = (n >> bit & 1).bool().view(-1, *[1] * (h.ndim - 1))
            h = torch.where(here, torch.einsum("...ij,...j->...i", A, h), h)
        elif n >> bit & 1:
            h = torch.einsum("...ij,...j->...i", A, h)
    return h
