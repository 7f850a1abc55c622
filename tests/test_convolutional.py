"""Convolutions over time: what an output sees, and what they are equal to."""

import pytest
import torch
from torch import nn

import longwave as lw
from longwave import mixers
from longwave.errors import UserError
from longwave.models.wavegan_discriminator import phase_shuffle
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


def test_the_shapes_of_wavegan_are_the_published_ones():
    with torch.device("meta"):
        model = lw.create_model("wavegan", n_classes=1)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    for i, (d_in, d_out) in enumerate(((1, 64), (64, 128), (128, 256), (256, 512), (512, 1024))):
        assert shapes[f"convs.{i}.weight"] == (d_out, d_in, 25)
    assert shapes["out.weight"] == (1, 16 * 1024)
    assert model.n_parameters == 17_427_969  # of the discriminator with width 64, for 16,384 samples
    with pytest.raises(UserError, match="such as 16384; got 16000"):
        lw.create_model("wavegan", n_classes=1, n_samples=16000)


def test_wavegan_step_by_step():
    """The convolutions as sums: step t of a layer lies in the middle of samples 4 t ... 4 t + 3 of the one below."""
    torch.manual_seed(0)
    model = lw.create_model("wavegan", n_classes=2, n_samples=256, width=2).double().eval()
    x, lengths = torch.randn(2, 200, 1, dtype=torch.float64), torch.tensor([200, 31])
    for row, n in enumerate(lengths.tolist()):
        h = torch.cat([x[row, :n], torch.zeros(256 - n, 1, dtype=torch.float64)])
        for conv in model.convs:
            steps = []
            for t in range(len(h) // 4):
                below = range(max(0, 4 * t - 10), min(len(h), 4 * t + 15))
                steps.append(conv.bias + sum(conv.weight[..., s - 4 * t + 10] @ h[s] for s in below))
            h = torch.stack(steps)
            h = torch.where(h > 0, h, 0.2 * h)
        assert len(h) == 16
        wanted = model.out.weight @ h.T.flatten() + model.out.bias
        bad = torch.where(torch.arange(200)[:, None] < lengths[:, None, None], x, torch.nan)
        torch.testing.assert_close(model(bad, None, lengths)[0][row], wanted)
    with pytest.raises(UserError, match="257 samples"):
        model(torch.zeros(1, 257, 1, dtype=torch.float64))


def test_phase_shuffle_moves_and_mirrors():
    x = torch.arange(5.0).repeat(3, 1, 1)
    moved = phase_shuffle(x, torch.tensor([2, 0, -1]))[:, 0].tolist()
    assert moved == [[2, 1, 0, 1, 2], [0, 1, 2, 3, 4], [1, 2, 3, 4, 3]]


def test_wavegan_learns_tones():
    def tones(count):
        kind = torch.randint(2, (count,))
        angle = torch.arange(256)[None] * torch.where(kind == 0, 0.2, 0.35)[:, None] + 6.3 * torch.rand(count, 1)
        return (angle.sin() + 0.3 * torch.randn(count, 256))[..., None], kind

    torch.manual_seed(0)
    model = lw.create_model("wavegan", n_classes=2, n_samples=256, width=8).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(*tones(32)).backward()
        optimizer.step()
    x, kind = tones(200)
    with torch.no_grad():
        assert (model.eval()(x)[0].argmax(1) == kind).double().mean() > 0.95
