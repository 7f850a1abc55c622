"""What long convolutions are known for: filters of any length, gates, matrices with equal diagonals, cheap decoding."""

import importlib
import math

import pytest
import scipy.linalg
import torch

from longwave import mixers
from longwave.ops.fftconv import Past, fftconv, long_conv, toeplitz
from longwave.parts.filters import ImplicitFilter, SineFilter
from longwave.record import recording


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_a_filter_of_any_length_begins_with_the_shorter_one():
    implicit, sine = ImplicitFilter(6, longest=64).double(), SineFilter(6, longest=64).double()
    for taps in (implicit, lambda n: sine(torch.arange(n).double())):
        whole = taps(200)  # also beyond `longest`
        for n in (1, 2, 33, 64, 65):
            assert torch.equal(taps(n), whole[:n]) or torch.allclose(taps(n), whole[:n], atol=1e-12)


def test_parameters_of_an_implicit_filter_do_not_depend_on_its_length():
    for make in (ImplicitFilter, SineFilter):
        short, long = (sum(p.numel() for p in make(6, longest=n).parameters()) for n in (8, 100_000))
        assert short == long


def test_the_decay_window_falls_monotonously_and_each_channel_at_its_own_rate():
    filters = ImplicitFilter(6, longest=64)
    t = torch.arange(200)[:, None]
    window = torch.exp(-t / 64 * filters.decay)
    assert bool((window.diff(dim=0) < 0).all())
    assert bool((window[1:].diff(dim=1) > 0).all())
    assert window[round(0.3 * 64), 0] == pytest.approx(0.01, rel=0.2)
    assert window[round(1.5 * 64), -1] == pytest.approx(0.01, rel=0.2)


def test_without_gates_hyena_is_affine_and_with_them_it_is_not():
    x, y = randn(1, 20, 6), randn(1, 20, 6)
    for gated in (False, True):
        hyena = mixers.create("hyena", 6, longest=32, gated=gated).double()
        zero = hyena(torch.zeros_like(x))[0]
        both = hyena(2 * x - 3 * y)[0] - zero
        apart = 2 * (hyena(x)[0] - zero) - 3 * (hyena(y)[0] - zero)
        assert torch.allclose(both, apart, atol=1e-12) is not gated


def test_the_toeplitz_matrix_is_the_convolution():
    h, u = randn(17, 3), randn(2, 17, 3)
    matrix = toeplitz(h)
    for d in range(3):
        assert torch.equal(matrix[d], torch.from_numpy(scipy.linalg.toeplitz(h[:, d].numpy(), [0.0] * 17)).tril())
    by_matrix = torch.einsum("dts,bsd->btd", matrix, u)
    assert (by_matrix - fftconv(u, h)).abs().max() < 1e-6


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("order", [2, 3])
def test_the_matrix_of_hyena_times_its_values_is_its_output(order, gated):
    hyena = mixers.create("hyena", 4, order=order, longest=32, gated=gated).double()
    x = randn(2, 11, 4)
    seen = []
    hook = hyena.out.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with recording() as tape:
        hyena(x)
    hook.remove()
    matrix = tape["matrix"]
    assert matrix.shape == (2, 4, 11, 11)
    assert not matrix.triu(1).any()
    taps = hyena.conv.shape[1]
    padded = torch.nn.functional.pad(hyena.project(x), (0, 0, taps - 1, 0))
    u = sum(padded[:, w : w + 11] * hyena.conv[:, w] for w in range(taps)) + hyena.conv_bias
    assert (torch.einsum("bdts,bsd->btd", matrix, u[..., :4]) - seen[0]).abs().max() < 1e-6


def test_decoding_costs_no_more_than_n_log_squared(monkeypatch):
    module = importlib.import_module("longwave.ops.fftconv")
    work = [0.0]

    def counted(u, h):
        n = min(u.shape[1] + h.shape[-2], 2 * u.shape[1])
        work[0] += len(u) * n * max(1.0, math.log2(n))
        return fftconv(u, h)

    monkeypatch.setattr(module, "fftconv", counted)
    h = torch.randn(4096, 1)
    costs = []
    for N in (256, 512, 1024, 2048):
        past, work[0] = Past(torch.zeros(1, 0, 1), torch.zeros(1, dtype=torch.long)), 0.0
        with torch.no_grad():
            for u in torch.randn(N, 1, 1, 1):
                _, past = long_conv(u, lambda n: h[:n], past)
        costs.append(work[0] / (N * math.log2(N) ** 2))
    assert max(costs) <= 1.05 * costs[0]  # N log^2 N, no more
    assert max(costs) < 4


def waves(time):
    """Four smooth signals [1, T, 4] at these times."""
    rates, phases = (torch.tensor(numbers, dtype=torch.float64) for numbers in ((2, 5, 8, 3), (0, 1, 2, 0.5)))
    return torch.sin(0.01 * rates * time[0, :, None] + phases)[None]


def test_ckconv_answers_alike_at_half_the_rate():
    torch.manual_seed(0)
    mixer = mixers.create("ckconv", 4, longest=128).double()
    fine = waves(torch.arange(256, dtype=torch.float64)[None])
    wanted = mixer(fine, None, None, 1.0)[0][:, ::2]
    at_half_the_rate, _ = mixer(fine[:, ::2], None, None, 2.0)
    assert (at_half_the_rate - wanted).norm() / wanted.norm() <= 0.05


def test_ckconv_takes_samples_at_irregular_times():
    torch.manual_seed(0)
    mixer = mixers.create("ckconv", 4, longest=128).double()
    gaps = torch.rand(1, 200, dtype=torch.float64) + 0.5
    times = gaps.cumsum(1)
    irregular, _ = mixer(waves(times), None, None, gaps)
    often = torch.arange(1, 8 * 220, dtype=torch.float64)[None] / 8  # the same signals, 8 samples a unit
    nearest = (times[0] * 8).round().long() - 1
    wanted = mixer(waves(often), None, None, 1 / 8)[0][:, nearest]
    assert (irregular - wanted).norm() / wanted.norm() <= 0.05


def test_squashing_makes_long_filters_sparse():
    torch.manual_seed(0)
    plain, squashed = (mixers.create("long_conv", 8, longest=512, squash=squash) for squash in (0.0, 0.003))
    assert torch.equal(plain.kernel(), plain.h)
    kernel = squashed.kernel()
    small = squashed.h.abs() <= 0.003
    assert bool(small.any()) and not kernel[small].any()
    assert torch.allclose(kernel[~small], (squashed.h - 0.003 * squashed.h.sign())[~small])
    smooth = mixers.create("long_conv", 8, longest=512, squash=0.0, smooth=4)
    assert smooth.kernel().diff(dim=0).norm() < 0.3 * smooth.h.diff(dim=0).norm()
