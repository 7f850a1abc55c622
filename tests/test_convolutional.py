"""Convolutions over time: what an output sees, and what they are equal to."""

import pytest
import torch
from torch import nn

from longwave import mixers
from longwave.parts.convolution import Convolution


def seen(mixer, T=80, d=4):
    """The steps before (and after) the middle one whose inputs its output depends on."""
    torch.manual_seed(0)
    x = torch.randn(1, T, d, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(mixer.double()(x)[0][0, T // 2].sum(), x)
    at = torch.nonzero(g[0].abs().amax(1))[:, 0] - T // 2
    return int(at.min()), int(at.max())


@pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (4, 1), (3, 5), (2, 8)])
def test_what_a_convolution_sees(taps, dilation):
    reach = (taps - 1) * dilation
    assert seen(mixers.create("conv", 4, taps=taps, dilation=dilation)) == (-reach, 0)
    left, right = seen(mixers.create("conv", 4, taps=taps, dilation=dilation, causal=False))
    assert (left, right) == (-(reach // 2), reach - reach // 2)


@pytest.mark.parametrize(("levels", "taps"), [(1, 2), (3, 3), (4, 2)])
def test_what_stacks_of_convolutions_see(levels, taps):
    doubling = (taps - 1) * (2**levels - 1)
    assert seen(mixers.create("tcn", 16, levels=levels, taps=taps), d=16) == (-2 * doubling, 0)
    assert seen(mixers.create("bytenet", 4, levels=levels, taps=taps)) == (-doubling, 0)
    assert seen(mixers.create("convs2s", 4, levels=levels, taps=taps)) == (-levels * (taps - 1), 0)
    assert seen(mixers.create("trellisnet", 4, depth=levels + 1)) == (-levels - 1, 0)


def test_weight_norm_keeps_length_and_direction_apart():
    layer = Convolution(3, 5, 2, gain=True).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    before = layer(x)[0] - layer.bias
    with torch.no_grad():
        layer.weight *= 7  # its length does not count
        layer.gain *= 2
    torch.testing.assert_close(layer(x)[0] - layer.bias, 2 * before)


@pytest.mark.parametrize("depth", [3, 9])
def test_a_trellis_network_is_a_truncated_lstm(depth):
    """Theorem 1: with no weight on x_{t-1} and h_t, an output is an LSTM's over the last `depth` steps."""
    ours = mixers.create("trellisnet", 4, depth=depth).double()
    theirs = nn.LSTM(4, 4, batch_first=True).double()
    with torch.no_grad():
        i, f, g, o = theirs.weight_ih_l0.chunk(4)
        ours.inject.weight.zero_()[..., 1] = torch.cat([f, i, g, o])
        i, f, g, o = (theirs.bias_ih_l0 + theirs.bias_hh_l0).chunk(4)
        ours.inject.bias.copy_(torch.cat([f, i, g, o]))
        i, f, g, o = theirs.weight_hh_l0.chunk(4)
        ours.U.zero_()[:, :4] = torch.cat([f, i, g, o])
    x = torch.randn(2, 9, 4, dtype=torch.float64)
    y, _ = ours(x)
    for t in range(9):
        wanted = theirs(x[:, max(0, t + 1 - depth) : t + 1])[0][:, -1]
        torch.testing.assert_close(y[:, t], wanted)


@pytest.mark.parametrize("name", ["conv", "tcn", "bytenet", "convs2s", "trellisnet"])
def test_a_stream_holds_no_more_than_the_windows(name):
    mixer = mixers.create(name, 8)
    state = mixer.init_state(1)
    size = state.nbytes
    for _ in range(40):
        _, state = mixer(torch.randn(1, 1, 8), state)
        assert state.nbytes == size
