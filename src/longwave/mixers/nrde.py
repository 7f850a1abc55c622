"""Neural rough differential equation: log-signatures of windows of a path drive the state, not the path's points.

Recurrence (over windows of w tokens, from r on; X_t is the path of time and a few projections of x):
    L_t = log-signature of X from r to t        y_t = z at 1 of dz/ds = F(z) L_t, z(0) = z_r        z_{r+w} = y_{r+w}
    F(z) = tanh(V tanh(U z + a) + b), a matrix of d times as many columns as L has numbers

Parallel form: none over windows; inside one all tokens are solved for at once, and the log-signatures are scans.

Cost: training and a decoded token O(d^2 l), l numbers in a log-signature; T / w sequential steps; state
d + c + c + c^2 + c^3 numbers for c channels at depth 3.

Paper: Morrill et al. 2021, "Neural rough differential equations for long time series", section 3, eq. 6-8; with depth 1
and a window of 1 a neural controlled differential equation, Kidger et al. 2020.

Deviations: between the ends of windows there is an output for every token, from the piece of the window so far. The
path starts at zero, z too, and one step of the classical Runge-Kutta scheme is taken a window.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.log_signature import log_signature, log_signature_size, signature_size
from longwave.ops.ragged import previous, zero_pads
from longwave.parts.linear import Linear
from longwave.parts.ode import ode_step
from longwave.parts.time import steps
from longwave.state import State


class Rough(State):
    z: Float[Tensor, "B D"]  # at the beginning of the window
    point: Float[Tensor, "B I"]  # where the path is
    signature: Float[Tensor, "B N"]  # of the window so far
    n: Int[Tensor, " B"]  # tokens seen


class NRDE(Mixer):
    work = "loop"
    continuous = True

    def __init__(
        self,
        d_model: int,
        *,
        window: int = 8,  # tokens that one log-signature sums up
        depth: Literal[1, 2, 3] = 2,  # levels of it: displacement, areas, volumes
        channels: int = 3,  # projections of the input that make the path, beside time
    ) -> None:
        super().__init__()
        check_positive(window=window, channels=channels)
        self.window, self.depth, self.channels = window, depth, channels
        self.path = Linear(d_model, channels, bias=False)
        self.inner = Linear(d_model, d_model)
        self.outer = Linear(d_model, d_model * log_signature_size(1 + channels, depth))
        self.out = Linear(d_model, d_model)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Rough:
        size = signature_size(1 + self.channels, self.depth)
        z, point = self.zeros(batch, self.inner.in_features), self.zeros(batch, self.channels)
        return Rough(z, point, self.zeros(batch, size, wide=True), self.zeros(batch, dtype=torch.long))

    def forward(
        self, x: Tensor, state: Rough | None = None, lengths: Tensor | None = None, dt: float | Tensor = 1.0
    ) -> tuple[Tensor, Rough | None]:
        past = state or self.init_state(len(x))
        path = self.path(x)
        before, point = previous(path, past.point, lengths)
        dx = torch.cat([steps(x, dt), path - before], -1)
        place = past.n[:, None] + torch.arange(x.shape[1], device=x.device)
        drive, signature = log_signature(dx, place % self.window == 0, self.depth, past.signature, lengths)
        y, z = self._solve(past.z, zero_pads(drive, lengths).to(x), past.n % self.window, ends(x, lengths))
        if state is None or point is None or signature is None:
            return self.out(y), None
        return self.out(y), Rough(z, point, signature, past.n + ends(x, lengths))

    def _solve(self, z: Tensor, drive: Tensor, offset: Tensor, length: Tensor | int) -> tuple[Tensor, Tensor]:
        """The state after each token, and at the beginning of the last window; the piece begins `offset` tokens into
        its first one."""
        T, w = drive.shape[1], self.window
        count = -(-(T + w - 1) // w)
        at = torch.arange(count * w, device=drive.device) - offset[:, None]  # the token in each place of the windows
        laid = drive.gather(1, at.clamp(0, T - 1)[..., None].expand(-1, -1, drive.shape[2]))
        full = offset + length  # places taken in all windows together
        one, ys = drive.new_ones(()), []
        for i, L in enumerate(laid.unflatten(1, (count, w)).unbind(1)):
            y = ode_step(lambda z, L=L: self.field(z, L), z[:, None].expand(-1, w, -1), one)  # type: ignore[misc]
            ys.append(y)
            z = torch.where(((i + 1) * w <= full)[:, None], y[:, -1], z)
        place = offset[:, None] + torch.arange(T, device=drive.device)
        return torch.cat(ys, 1).gather(1, place[..., None].expand(-1, -1, z.shape[1])), z

    def field(self, z: Tensor, L: Tensor) -> Tensor:
        """F(z) L; written as functions, for it runs many times a window."""
        hidden = torch.tanh(F.linear(z, self.inner.weight, self.inner.bias))
        matrix = torch.tanh(F.linear(hidden, self.outer.weight, self.outer.bias))
        return (matrix.unflatten(-1, (-1, L.shape[-1])) @ L[..., None])[..., 0]
