"""CKConv: a convolution whose kernel is a function of continuous time, written by a small network.

Recurrence (the state is the past and its times; K: [0, inf) -> R^d):
    y_t = W sum_{s <= t} K(time_t - time_s) dt_s x_s + b

Parallel form: the same sums by the FFT where the step is constant; otherwise every pair.

Cost: training O(T d log T + T w^2) for a network of width w; N decoded tokens O(N d log^2 N) together; with a `dt` a
token, or one that changes on the way, O(T^2 w (w + d)); state 3 t d numbers.

Paper: Romero et al. 2022, "CKConv: continuous kernel convolution for sequential data", section 4.

Deviations: one kernel a channel and a product by W behind it, as in the authors' later work (Knigge et al. 2023); the
paper has a kernel for each pair of channels. A sample counts as much as the time since the one before it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.fftconv import Past, fftconv, long_conv
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.parts.filters import SineFilter
from longwave.parts.linear import Linear
from longwave.parts.time import steps
from longwave.state import State, write_at


class Samples(State):
    past: Past  # inputs times their steps
    time: Float[Tensor, "B S"]
    now: Float[Tensor, " B"]
    step: float  # between all samples so far; 0: it changed


class CKConv(Mixer):
    work = "fft"
    continuous = True
    growth = "linear"

    def __init__(
        self,
        d_model: int,
        *,
        longest: int = 1024,  # the length that the network measures time in; kernels have no end
    ) -> None:
        super().__init__()
        check_positive(longest=longest)
        self.kernel = SineFilter(d_model, longest=longest)
        self.out = Linear(d_model, d_model)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> Samples:
        """`capacity`: room for so many tokens, which never grows: the form for compile and export."""
        u, n = self.zeros(batch, capacity or 0, self.out.in_features), self.zeros(batch, dtype=torch.long)
        time = self.zeros(batch, capacity or 0, wide=True)
        return Samples(Past(u, n, fixed=capacity is not None), time, self.zeros(batch, wide=True), 1.0)

    def forward(
        self, x: Tensor, state: Samples | None = None, lengths: Tensor | None = None, dt: float | Tensor | None = None
    ) -> tuple[Tensor, Samples | None]:
        gaps = zero_pads(steps(wide(x), 1.0 if dt is None else dt)[..., 0], lengths)
        u = x if dt is None else x * gaps[..., None].to(x)
        if state is None:
            y = fftconv(u, self._taps(x, dt)) if not _changing(dt) else self._pairs(gaps.cumsum(1), gaps.cumsum(1), u)
            return self.out(y), None
        now = state.now[:, None] + gaps.cumsum(1)
        at = state.past.n[:, None] + torch.arange(x.shape[1], device=x.device)
        fixed = state.past.fixed
        time = write_at(state.time, at, now, fixed=fixed)
        step = 0.0 if isinstance(dt, Tensor) else 1.0 if dt is None else float(dt)
        if step != state.step and state.time.shape[1]:
            step = 0.0
        if step:
            y, past = long_conv(
                u, lambda n: self.kernel(step * torch.arange(n, device=x.device).to(now)), state.past, lengths
            )
            assert past is not None
        else:
            held = write_at(state.past.u, at, zero_pads(u, lengths), fixed=fixed)
            past = Past(held, state.past.n + ends(x, lengths), fixed=fixed)
            y = self._pairs(now, time, past.u, at)
        return self.out(y), Samples(past, time, now[:, -1], step)

    def _taps(self, x: Tensor, dt: float | Tensor | None) -> Float[Tensor, "*b T D"]:
        """The kernel at multiples of a constant step: one filter, or one a row."""
        step = torch.as_tensor(1.0 if dt is None else dt, dtype=wide(x).dtype, device=x.device)
        return self.kernel(step[..., None] * torch.arange(x.shape[1], device=x.device))

    def _pairs(
        self, now: Float[Tensor, "B T"], time: Float[Tensor, "B S"], u: Float[Tensor, "B S D"], at: Tensor | None = None
    ) -> Float[Tensor, "B T D"]:
        order = torch.arange(u.shape[1], device=u.device)
        at = order.expand(len(u), -1) if at is None else at
        seen = (order <= at[..., None])[..., None]
        K = self.kernel((now[:, :, None] - time[:, None]).clamp_min(0))
        return torch.einsum("btsd,bsd->btd", torch.where(seen, K, 0), u)


def _changing(dt: float | Tensor | None) -> bool:
    return isinstance(dt, Tensor) and dt.ndim == 2
