"""Adaptive computation time: a cell may run several times on one token, and decides when it has thought enough.

Recurrence (cell C any mixer, at token t from (y^0, s^0) = (-, s_{t-1}), for n = 1, 2 ...):
    y^n, s^n = C(x_t + [n = 1] f, s^{n-1})        h^n = sigmoid(w . y^n + b)
    N = the first n where h^1 + ... + h^n >= 1 - e, or the last allowed
    p^n = h^n for n < N, p^N = 1 - sum_{n<N} h^n
    y_t = sum_n p^n y^n        s_t = sum_n p^n s^n        ponder_t = N + p^N, added to the loss

Parallel form: none; each token waits for the one before.

Cost: that of the cell N times a token, for a batch its slowest row's N; the state is the cell's.

Paper: Graves 2016, "Adaptive computation time for recurrent neural networks", section 2, eq. 5-13.

Deviations: the halting unit looks at the cell's output. The flag that marks the first step is a learned vector f added
to the input, which before a linear map is the same as a column of its own.
"""

import math

import torch
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.mixers import create
from longwave.ops.ragged import zero_pads
from longwave.ops.scan import scan
from longwave.parts.linear import Linear
from longwave.record import aux_loss, record
from longwave.spec import Spec
from longwave.state import State


class ACT(Mixer):
    work = "loop"

    def __init__(
        self,
        d_model: int,
        *,
        mixer: Spec | str = "gru",  # the cell, a mixer whose state can be averaged
        max_steps: int = 4,  # the most steps that a token may take
        epsilon: float = 0.01,  # what may be left when it stops; 1: always one step
        cost: float = 0.01,  # of a step, in the training loss
    ) -> None:
        super().__init__()
        check_positive(max_steps=max_steps)
        self.max_steps, self.epsilon, self.cost = max_steps, epsilon, cost
        self.mixer = create(mixer, d_model)
        if not self.mixer.causal or any(not part.is_floating_point() for part in self.mixer.init_state(1).leaves()):
            raise UserError(f"act averages states: {type(self.mixer).__name__} has none, or one that holds positions; "
                            "rnn, gru, lstm, s4d and gla can be averaged")  # fmt: skip
        self.growth = self.mixer.growth
        self.halt = Linear(d_model, 1)
        nn.init.ones_(self.halt.bias)  # few steps at first
        self.first = nn.Parameter(torch.randn(d_model) / math.sqrt(d_model))
        hint(self, "first", decay=False, own_init=True)
        hint(self.halt, "bias", decay=False, own_init=True)

    def init_state(self, batch: int) -> State:
        return self.mixer.init_state(batch)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        both, state = scan(self._think, x, state or self.init_state(len(x)), lengths)
        y, steps, rest = both.split([x.shape[2], 1, 1], -1)
        aux_loss("ponder", lambda: self.cost * zero_pads(steps + rest, lengths))
        record("steps", steps[..., 0])
        return y, state

    def _think(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One token: the mean output beside how many steps it took and what was left for the last; the mean state."""
        y, mean = torch.zeros_like(x), None
        steps = halted = x.new_zeros(x.shape[0], 1)
        left = torch.ones_like(halted)
        running = torch.ones_like(halted, dtype=torch.bool)
        for n in range(self.max_steps):
            y_n, state = self.mixer((x + self.first if n == 0 else x)[:, None], state)
            h = torch.sigmoid(self.halt(y_n[:, 0]))
            stops = running if n == self.max_steps - 1 else running & (halted + h >= 1 - self.epsilon)
            p = torch.where(running, torch.where(stops, 1 - halted, h), 0)
            y = y + p * y_n[:, 0]
            mean = _add(mean, state, p[:, 0])
            steps, left = steps + running, torch.where(stops, p, left)
            running = running & ~stops
            if not torch.compiler.is_exporting() and not bool(running.any()):
                break
            halted = halted + torch.where(running, h, 0)
        assert mean is not None
        return torch.cat([y, steps, left], -1), mean


def _add(mean: State | None, state: State, p: Tensor) -> State:
    share = state.map(lambda t: t * p.view(-1, *[1] * (t.ndim - 1)).to(t.dtype))
    return share if mean is None else mean.map(torch.add, share)
