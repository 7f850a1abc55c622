"""The laws must catch what goes wrong in practice: each mixer here has one mistake, named in its verdict."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longwave.laws import check
from longwave.mixer import Mixer, ends, valid
from longwave.mixers.attention import KV, Attention
from longwave.mixers.lstm import LSTM
from longwave.mixers.mamba import Mamba, Selected
from longwave.ops import short_conv
from longwave.state import Empty, State


class Window(State):
    past: torch.Tensor


class Conv(Mixer):
    """A short causal convolution, right as it stands."""

    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_model, 3))

    def init_state(self, batch):
        return Window(self.zeros(batch, 2, self.weight.shape[0]))

    def forward(self, x, state=None, lengths=None):
        y, past = short_conv(x, self.weight, None, None if state is None else state.past, lengths)
        return y, None if state is None else Window(past)


class ForgetsItsWindow(Conv):
    def forward(self, x, state=None, lengths=None):
        y, past = short_conv(x, self.weight, None, None if state is None else torch.zeros_like(state.past), lengths)
        return y, None if state is None else Window(past)


class KeepsPads(Conv):
    """Takes its window from the end of the batch, not of each row."""

    def forward(self, x, state=None, lengths=None):
        y, past = short_conv(x, self.weight, None, None if state is None else state.past)
        return y, None if state is None else Window(past)


class LooksAhead(Conv):
    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)), new


class LeaksPadded(Mixer):
    """Sees the whole sequence, and one pad too many."""

    causal = False

    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, state=None, lengths=None):
        n = torch.full((len(x),), x.shape[1]) if lengths is None else (lengths + 1).clamp_max(x.shape[1])
        real = valid(x, n)[..., None]
        mean = (self.out(x) * real).sum(1, keepdim=True) / n.clamp_min(1)[:, None, None]
        return mean.expand_as(x), None


class MixesRows(Conv):
    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return y - y.mean(0, keepdim=True) * 0.1, new


class DetachesItsState(Conv):
    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, None if state is None else state.detach(), lengths)
        return y, new


class WritesInPlaceForAll(Attention):
    """Writes new keys where an older state still reads: at the beginning of its buffer."""

    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        if new is not None and not torch.is_grad_enabled():
            state.k[:, : x.shape[1]] = new.k[:, : x.shape[1]] * 1.5
        return y, new


class ForgetsWhereItStands(Attention):
    """Counts positions from the start of each piece."""

    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return y, None if new is None else KV(new.k, new.v, torch.full_like(new.n, x.shape[1]), new.fixed)


class Unused(Conv):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.spare = nn.Parameter(torch.ones(d_model))


class Dice(Conv):
    """Draws its random features anew at each construction, and saves them nowhere."""

    def __init__(self, d_model):
        super().__init__(d_model)
        self.signs = torch.randn(d_model).sign()

    def forward(self, x, state=None, lengths=None):
        return super().forward(x * self.signs.to(x), state, lengths)


class Grows(Conv):
    """Says its state is constant, and keeps everything."""

    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return y, None if new is None else Window(torch.cat([torch.zeros_like(x), new.past], 1)[:, -1000:])


class Swallows(Conv):
    def __init__(self, d_model, **options):
        super().__init__(d_model)


class Overflows(Conv):
    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return (y * 300).square() * 1e-4, new


class OddLengthsOnly(Conv):
    def forward(self, x, state=None, lengths=None):
        if x.shape[1] % 2 == 0:
            raise ValueError("the length must be odd")
        return super().forward(x, state, lengths)


class HandsBackAState(Conv):
    def __call__(self, x, state=None, lengths=None, dt=None):
        y, new = super().__call__(x, self.init_state(len(x)) if state is None else state, lengths, dt)
        return y, new


class PadsMoveTheCell(LSTM):
    def forward(self, x, state=None, lengths=None):
        return super().forward(x, state, None)


class ScansPads(Mamba):
    def forward(self, x, state=None, lengths=None):
        y, new = super().forward(x, state, lengths)
        return y, None if new is None else Selected(new.window, super().forward(x, state, None)[1].h)


class CountsPads(Mixer):
    """A counter that also counts pads."""

    def __init__(self, d_model):
        super().__init__()

    def forward(self, x, state=None, lengths=None):
        n = torch.zeros(len(x)) if state is None else state.n
        at = n[:, None] + torch.arange(x.shape[1])
        return x * at[..., None].to(x).cos(), None if state is None else Empty(state.n + ends(x, None))


MUTANTS = [
    (ForgetsItsWindow, "split", ["T=2", "cut into 1+1", "row 0, step 1"]),
    (KeepsPads, "padding", ["T=2", "lengths 1", "row 0"]),
    (LooksAhead, "causality", ["T=2", "step 0 depends on the input at step 1"]),
    (LeaksPadded, "padding", ["T=2", "lengths 1", "row 0"]),
    (MixesRows, "rows", ["T=1", "row 0"]),
    (DetachesItsState, "split", ["the gradient of x"]),
    (WritesInPlaceForAll, "split", ["T=2", "cut into 1+1"]),
    (ForgetsWhereItStands, "split", ["cut into"]),
    (Unused, "gradients", ["spare", "zero"]),
    (Dice, "seeds", ["saved and loaded"]),
    (Grows, "state size", ["declared 'constant'"]),
    (Swallows, "sizes", ["**options".replace("options", "kwargs")]),
    (Overflows, "half precision", ["float16"]),
    (OddLengthsOnly, "split", ["T=2", "the length must be odd"]),
    (HandsBackAState, "split", ["state=None came back as a state"]),
    (PadsMoveTheCell, "padding", ["T=2", "lengths 1"]),
    (ScansPads, "padding", ["T=2", "lengths 1"]),
    (CountsPads, "padding", ["T=2", "lengths 1"]),
]


@pytest.mark.parametrize(("mutant", "law", "words"), MUTANTS, ids=lambda value: getattr(value, "__name__", None))
def test_mutants_are_caught_with_the_smallest_case(mutant, law, words):
    report = check(mutant, dtypes=(torch.float64,))
    verdicts = {v.law: v for v in report.verdicts}
    assert verdicts[law].kept is False, f"\n{report}"
    for word in words:
        assert word in verdicts[law].detail, verdicts[law].detail


def test_the_right_one_passes():
    report = check(Conv)
    assert report.ok, f"\n{report}"


def test_a_dead_parameter_may_be_declared():
    class Declared(Unused):
        dead = {"spare": "kept for a later version"}  # noqa: RUF012

    assert check(Declared, dtypes=(torch.float64,)).ok


def test_what_is_no_mixer_is_said_to_be_none():
    with pytest.raises(ValueError, match="which is no Mixer"):
        check(lambda d: nn.Linear(d, d))
