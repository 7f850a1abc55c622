"""Causal convolution with a filter as long as the sequence: y_t = sum_{s <= t} h_{t-s} u_s, channel by channel.

By the FFT it takes O(T log T) instead of O(T^2). Its state is its past: every input counts for ever.

Decoding need not be quadratic in total. At position c let k be the largest power of two that divides c: the last k
inputs are then sent to the next k outputs, by one convolution of 2k. Every pair (input, output) meets exactly once,
however the sequence is cut, and N tokens cost O(N log^2 N). The sums already made for outputs to come are `todo`;
they can be rebuilt from the past, so they are never differentiated and a snapshot leaves them out. (A relaxed
multiplication: van der Hoeven 2002, section 4.)
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.ragged import zero_pads
from longwave.state import State, may_write, write_at


@op
def fftconv(u: Float[Tensor, "B T D"], h: Float[Tensor, "*b L D"]) -> Float[Tensor, "B T D"]:
    """h is one filter for all rows, [L, D], or one a row, [B, L, D]; L may be shorter or longer than T."""
    T, L = u.shape[1], h.shape[-2]
    ys = []
    for t in range(T):
        n = min(t + 1, L)
        ys.append((u[:, t + 1 - n : t + 1].flip(1) * h[..., :n, :]).sum(1))
    return torch.stack(ys, 1)


@fftconv.samples
def fftconv_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    for T, L in ((1, 1), (2, 2), (7, 7), (33, 33), (20, 5), (5, 20)):
        yield f"T={T}, L={L}", dict(u=make.normal(2, T, 3), h=make.normal(L, 3))
    yield "a filter a row", dict(u=make.normal(3, 9, 2), h=make.normal(3, 9, 2))


@fftconv.form("torch", worth=lambda u, **_: "" if u.shape[1] > 1 else "one step is one product")
def by_fft(u: Tensor, h: Tensor) -> Tensor:
    T, L = u.shape[1], min(h.shape[-2], u.shape[1])
    size = _smooth(T + L - 1)
    wide = torch.promote_types(u.dtype, torch.float32)  # there is no half-precision FFT on the CPU
    spectrum = torch.fft.rfft(u.to(wide).transpose(1, 2), size) * torch.fft.rfft(h[..., :L, :].to(wide).mT, size)
    return torch.fft.irfft(spectrum, size)[..., :T].transpose(1, 2).to(u.dtype)


def toeplitz(h: Float[Tensor, "T D"]) -> Float[Tensor, "D T T"]:
    """The convolution as a matrix, a channel: lower triangular, the same number along each diagonal."""
    T = len(h)
    age = torch.arange(T, device=h.device)[:, None] - torch.arange(T, device=h.device)
    return torch.where(age >= 0, h.T[:, age.clamp_min(0)], 0)


class Past(State):
    u: Float[Tensor, "B S D"]
    n: Int[Tensor, " B"]
    todo: Float[Tensor, "B S2 D"] | None = None  # what the past already contributes to outputs to come
    fixed: bool = False  # capacity: a buffer that never grows, and a sum over all of it for every piece

    def snapshot(self) -> "Past":
        return Past(self.u, self.n, fixed=self.fixed)


Filter = Callable[[int], Tensor]  # its first `length` taps, [length, D]; a longer prefix begins with the shorter one


def long_conv(u: Tensor, taps: Filter, past: Past | None, lengths: Tensor | None = None) -> tuple[Tensor, Past | None]:
    """Convolve u[B, T, D], continuing `past`."""
    u = zero_pads(u, lengths)
    if past is None:
        return fftconv(u, taps(u.shape[1])), None
    count = torch.full_like(past.n, u.shape[1]) if lengths is None else lengths
    at = past.n[:, None] + torch.arange(u.shape[1], device=u.device)
    every = write_at(past.u, at, u, fixed=past.fixed)
    if may_write(past.u, u) and not past.fixed:
        return _stream(every, past, count, u.shape[1], taps)
    h, after = taps(every.shape[1]), Past(every, past.n + count, fixed=past.fixed)
    if past.fixed and u.shape[1] == 1:
        age = at - torch.arange(every.shape[1], device=u.device)
        weight = torch.where((age >= 0)[..., None], h[age.clamp_min(0)], 0)
        return (every * weight).sum(1, keepdim=True), after
    return fftconv(every, h).gather(1, at[..., None].expand_as(u)), after


def _stream(every: Tensor, past: Past, count: Tensor, T: int, taps: Filter) -> tuple[Tensor, Past]:
    y = every.new_zeros(len(every), T, every.shape[2])
    capacity = 2 * every.shape[1]
    if past.todo is None:
        todo = every.new_zeros(len(every), capacity, every.shape[2])
    elif past.todo.shape[1] < capacity:
        todo = F.pad(past.todo, (0, 0, 0, capacity - past.todo.shape[1]))
    else:
        todo = past.todo
    places = list(zip(past.n.tolist(), count.tolist(), strict=True))
    h = taps(2 * max(_largest_power(n if past.todo is not None else 0, n + length) for n, length in places))
    for n, length in set(places):  # rows at the same place go together
        here = [row for row, place in enumerate(places) if place == (n, length)]
        rows = slice(None) if len(here) == len(places) else torch.tensor(here, device=every.device)
        if past.todo is None:
            for bit in range(n.bit_length()):
                if n >> bit & 1:
                    _send(todo, every, rows, n >> bit << bit, h)
        _advance(todo, every, rows, n, n + length, h)
        y[rows, :length] = todo[rows, n : n + length]
    return y, Past(every, past.n + count, todo)


def _advance(todo: Tensor, u: Tensor, rows: Any, start: int, stop: int, h: Tensor) -> None:
    """Finish outputs start .. stop - 1, in aligned blocks of powers of two."""
    c = start
    while c < stop:
        size = 1 << (stop - c).bit_length() - 1
        size = min(size, c & -c) if c else size
        todo[rows, c : c + size] += fftconv(u[rows, c : c + size], h[:size])
        c += size
        _send(todo, u, rows, c, h)


def _send(todo: Tensor, u: Tensor, rows: Any, c: int, h: Tensor) -> None:
    """What the last k inputs before c contribute to the next k outputs, k the largest power of two that divides c."""
    k = c & -c
    todo[rows, c : c + k] += fftconv(F.pad(u[rows, c - k : c], (0, 0, 0, k)), h[: 2 * k])[:, k:]


def _largest_power(start: int, stop: int) -> int:
    """The largest power of two that divides a number in start + 1 ... stop; 1 where there is none."""
    return 1 << max(0, (start ^ stop).bit_length() - 1)


def _smooth(n: int) -> int:
    """The smallest size >= n that the FFT likes: a power of two times 1, 3, 5, 9 or 15."""
    return min(odd << max(0, (-(-n // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))
