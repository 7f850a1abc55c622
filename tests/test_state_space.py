"""State spaces as the lectures have them: sampling, recurrence and convolution, HiPPO memories, S4's kernel, selection.

What the laws and the oracles already say of every mixer is not said again. Trained claims (permuted MNIST, delay,
selective copying) and published Mamba weights are tested where tasks and weights are; how time grows with length is for
the benchmarks: on a busy machine it is no test.
"""

import importlib
import math

import numpy as np
import pytest
import torch
from scipy import signal

import longwave as lw
from longwave import mixers
from longwave.cli import main
from longwave.ops import (
    dense_lti,
    discretize,
    discretize_diagonal,
    dplr,
    dplr_kernel,
    krylov,
    linear_scan,
    lti,
    selective_ssm,
    ssm,
    use,
    vandermonde,
)
from longwave.ops.dense_lti import final_state
from longwave.ops.lti import impulse, squarings
from longwave.parts.hippo import basis, nplr, project, transition
from longwave.probe.hippo import draw, recall, smooth
from longwave.state import State

METHODS = {"zoh": "zoh", "bilinear": "bilinear", "forward": "euler", "backward": "backward_diff"}
LINEAR = ("s4", "s4d", "s5", "lssl", "lmu", "mamba", "mamba2", "gla", "linear_attention")


def stable(N, seed=0):
    draw_ = np.random.default_rng(seed)
    A = draw_.normal(size=(N, N))
    A = A - (np.linalg.eigvals(A).real.max() + 0.5) * np.eye(N)
    return A, draw_.normal(size=(N, 1)), draw_.normal(size=(1, N))


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(a)) for a in arrays]


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_a_held_input_is_simulated_as_scipy_does(seed):
    A, B, C = stable(5, seed)
    u, D, dt = np.random.default_rng(seed).normal(size=50), 0.7, 0.1
    _, wanted, _ = signal.lsim((A, B, C, [[D]]), u, np.arange(50) * dt, interp=False)
    Ad, Bd = discretize(*tensors(A, B), dt)
    y, _ = dense_lti(torch.from_numpy(u)[None, :, None], Ad[None], Bd[None, :, 0], torch.from_numpy(C))
    y = torch.cat([torch.zeros(1, dtype=y.dtype), y[0, :-1, 0]]) + D * torch.from_numpy(u)  # SciPy looks before a step
    assert (y - torch.from_numpy(wanted.copy())).abs().max() <= 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_discretisations_are_scipys(method):
    A, B, C = stable(6)
    wanted = signal.cont2discrete((A, B, C, np.zeros((1, 1))), 0.05, METHODS[method])
    Ad, Bd = discretize(*tensors(A, B), 0.05, method)
    assert (Ad - torch.from_numpy(wanted[0])).abs().max() <= 1e-10
    if method != "backward":  # where SciPy moves a part of B into D
        assert (Bd - torch.from_numpy(wanted[1])).abs().max() <= 1e-10
    if method in ("zoh", "bilinear"):
        for dt in (0.01, 1.0, 100.0):
            Ad, _ = discretize(*tensors(A, B), dt, method)
            assert torch.linalg.eigvals(Ad).abs().max() < 1
        poles = torch.linalg.eigvals(torch.from_numpy(A))
        z, gain = discretize_diagonal(poles, torch.tensor([0.05], dtype=torch.float64), method)
        right, one = discretize(torch.diag(poles), torch.ones(6, 1, dtype=poles.dtype), 0.05, method)
        assert (z.exp() - right.diagonal()).abs().max() <= 1e-10
        assert (gain - one[:, 0]).abs().max() <= 1e-10


def systems(D=3, N=4):
    """(name, run(u, state)) for every kind of matrix."""
    A, B, C = 0.3 * normal(D, N, N), normal(D, N), normal(D, N)
    poles = torch.complex(-torch.rand(D, N, dtype=torch.float64) - 0.1, 3 * normal(D, N))
    P, b, c = (torch.complex(normal(D, N), normal(D, N)) for _ in range(3))
    dt = torch.rand(D, dtype=torch.float64) / 2
    yield "dense", lambda u, h: dense_lti(u, A, B, C, h), normal(2, D, N)
    yield "diagonal", lambda u, h: lti(u, poles * dt[:, None], b, c, h), normal(2, D, N, 2)
    yield "diagonal minus rank one", lambda u, h: dplr(u, dt, poles, P, b, c, h), normal(2, D, N, 2)


def test_steps_scan_and_convolution_are_one_map():
    for name, run, h in systems():
        u = normal(2, 33, 3)
        y, last = run(u, h)
        stepped, state = [], h
        for t in range(33):
            yt, state = run(u[:, t : t + 1], state)
            stepped.append(yt)
        assert (torch.cat(stepped, 1) - y).abs().max() <= 1e-9, name
        assert (state - last).abs().max() <= 1e-9, name


@pytest.mark.parametrize("length", [1, 2, 7, 64, 101])
def test_kernels_are_explicit_matrix_powers(length):
    D, N = 2, 3
    A, B, C = 0.4 * normal(D, N, N), normal(D, N), normal(D, N)
    poles = torch.complex(-torch.rand(D, N, dtype=torch.float64) - 0.1, 3 * normal(D, N))
    P, b, c = (torch.complex(normal(D, N), normal(D, N)) for _ in range(3))
    dt = torch.rand(D, dtype=torch.float64) / 2 + 0.1

    def powers(A, B, C):
        h, K = B, []
        for _ in range(length):
            K.append((C * h).sum(-1))
            h = (A @ h[..., None])[..., 0]
        return torch.stack(K, -1)

    assert (krylov(A, B, C, length) - powers(A, B, C)).abs().max() <= 1e-8
    z = poles * dt[:, None]
    assert (
        vandermonde(c, z, length) - powers(torch.diag_embed(z.exp()), torch.ones_like(c), c).real
    ).abs().max() <= 1e-8

    pairs = [torch.cat([x, x.conj()], -1) for x in (poles, P, b, c)]
    whole = torch.diag_embed(pairs[0]) - pairs[1][:, :, None] * pairs[1][:, None].conj()
    Ad, Bd = discretize(whole, pairs[2][..., None], dt, "bilinear")
    wanted = powers(Ad, Bd[..., 0], pairs[3])
    assert (dplr_kernel(dt, poles, P, b, c, length) - wanted.real).abs().max() <= 1e-8


def test_a_free_matrix_blows_up_and_the_structured_ones_do_not():
    L, N = 4096, 16
    u = torch.randn(1, L, 1)
    free = torch.randn(1, N, N) / math.sqrt(N) * 1.2
    _, h = dense_lti(u, free, torch.ones(1, N), torch.ones(1, N), torch.zeros(1, 1, N))
    assert not bool(h.isfinite().all()) or h.abs().max() > 1e6
    A, B = (x.float() for x in transition("legs", N))
    Ad, Bd = discretize(A, B[:, None], 0.05, "bilinear")
    _, h = dense_lti(u, Ad[None], Bd[None, :, 0], torch.ones(1, N), torch.zeros(1, 1, N))
    assert h.abs().max() < 100
    mixer = mixers.create("s4d", 4)
    _, state = mixer(torch.randn(1, L, 4), mixer.init_state(1))
    assert state.h.abs().max() < 100


def test_matrices_are_the_published_ones():
    N = 9
    for n in range(N):
        for k in range(N):
            root = math.sqrt((2 * n + 1) * (2 * k + 1))
            published = {
                "legs": -root if n > k else -(n + 1) if n == k else 0,
                "legt": -root if k <= n else -root * (-1) ** (n - k),
                "lmu": -(2 * n + 1) * ((-1) ** (n - k) if n >= k else 1),
                "lagt": -1 if n >= k else 0,
            }
            for measure, value in published.items():
                assert abs(float(transition(measure, N)[0][n, k]) - value) <= 1e-12, measure
        inputs = {"legs": math.sqrt(2 * n + 1), "legt": math.sqrt(2 * n + 1), "lmu": (2 * n + 1) * (-1) ** n, "lagt": 1}
        for measure, value in inputs.items():
            assert abs(float(transition(measure, N)[1][n]) - value) <= 1e-12, measure


@pytest.mark.parametrize(("measure", "theta"), [("legs", 1.0), ("legt", 0.4), ("lagt", 0.1)])
def test_online_coefficients_are_the_projection(measure, theta):
    """The basis is orthonormal under the measure, so that the least squares projection is a row of inner products."""
    steps, N = 1000, 64
    at = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    c = project(smooth(at)[None], measure, N, dt=1 / steps, theta=theta)[0, -1]
    end = 1 / theta if measure == "lagt" else 1.0
    age = (torch.arange(200000, dtype=torch.float64) + 0.5) / 200000 * end
    weight = (torch.exp(-age) if measure == "lagt" else torch.ones_like(age)) * end / 200000
    wanted = (weight * smooth(1 - age * theta)) @ basis(measure, N, age)
    assert (c - wanted).norm() <= 1e-2 * wanted.norm()
    errors = [recall(measure, order, 1000, moments=[1.0])[0].error for order in (4, 16, 64)]
    assert errors[0] > 1.5 * errors[1] > 1.5 * errors[2] if measure != "legt" else errors[0] > 10 * errors[1]


def test_the_window_forgets_a_pulse_that_left_it():
    f = torch.zeros(1, 1600, dtype=torch.float64)
    f[:, 10:30] = 1
    c = project(f, "legt", 32, dt=1e-3, theta=0.5, method="zoh")[0].norm(dim=-1)
    assert c[700:].max() < 0.01 * c.max()
    assert c[400] > 0.5 * c.max()


def test_laguerre_forgets_exponentially():
    f = torch.zeros(1, 2000, dtype=torch.float64)
    f[:, 0] = 1
    c = project(f, "lagt", 8, dt=1e-3, theta=0.3, method="zoh")[0, :, 0]  # the weighted mean of the past
    t, log = torch.arange(2000) * 1e-3, c.log()
    r = float(torch.corrcoef(torch.stack([t.double(), log]))[0, 1])
    assert r**2 >= 0.99
    assert float((log[-1] - log[0]) / t[-1]) == pytest.approx(-1 / 0.3, rel=1e-3)


def test_legs_does_not_care_about_the_time_scale():
    def coefficients(steps, speed):
        at = (torch.arange(steps, dtype=torch.float64) + 0.5) * 1e-4
        return project(smooth(speed * at)[None], "legs", 16, dt=1e-4)[0, -1]

    slow, fast = coefficients(6000, 1.0), coefficients(3000, 2.0)
    assert (slow - fast).norm() <= 1e-3 * slow.norm()


def test_the_pictures_of_hippo_and_their_numbers(tmp_path, capsys):
    memories = {measure: recall(measure) for measure in ("legt", "lagt", "legs")}
    assert draw(memories, tmp_path).stat().st_size > 10_000
    limits = {"legt": 2e-4, "lagt": 0.1, "legs": 4e-3}
    for measure, several in memories.items():
        for memory in several:
            assert memory.error < limits[measure], (measure, memory.moment)
            assert memory.recalled.shape == memory.signal.shape == memory.weight.shape
            covered = memory.weight.mean() * (memory.time.max() - memory.time.min())
            assert float(covered) == pytest.approx(1, abs=0.02)  # a measure of one
    assert main(["profile", "hippo", "--steps", "300", "--order", "16", "--out", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    assert "legs" in said and (tmp_path / "new" / "hippo.png").exists()
    assert main(["profile", "hipo"]) == 2
    assert "did you mean 'hippo'" in capsys.readouterr().err


def test_hippo_matrices_are_not_trained():
    for name in ("hippo_rnn", "lmu"):
        mixer = mixers.create(name, 4)
        assert not mixer.A.requires_grad and not mixer.B.requires_grad
        assert mixer.half().A.dtype is torch.float32


def test_lssl_starts_as_hippo_and_learns_within_its_form():
    mixer = mixers.create("lssl", 4, d_state=8).double()
    wanted = transition("legs", 8)[0]
    assert (mixer.A() - wanted).abs().max() < 1e-5
    mixer(torch.randn(1, 20, 4, dtype=torch.float64))[0].sum().backward()
    assert all(bool(getattr(mixer, name).grad.any()) for name in ("P", "Q", "E", "T", "above", "below"))
    fixed = mixers.create("lssl", 4, learn_A=False)
    assert not fixed.P.requires_grad


def test_the_kernel_of_s4_is_that_of_the_dense_hippo_matrix():
    n, L = 32, 256
    dt = torch.tensor([0.001, 0.01, 0.1])
    A, B = transition("legs", 2 * n)
    Ad, Bd = discretize(A.expand(3, -1, -1), B[:, None].expand(3, -1, -1), dt.double(), "bilinear")
    wanted = krylov(Ad, Bd[..., 0], B.expand(3, -1), L)
    poles, P, B = (x.to(torch.complex64).expand(3, -1) for x in nplr(n))
    found = dplr_kernel(dt, poles, P, B, B.conj(), L)
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


def test_a_long_kernel_is_made_in_chunks(monkeypatch):
    module = importlib.import_module("longwave.ops.dplr")
    poles = torch.complex(-torch.rand(2, 3, dtype=torch.float64) - 0.1, normal(2, 3)).requires_grad_()
    P, B, C = (torch.complex(normal(2, 3), normal(2, 3)) for _ in range(3))
    dt, weight, found = torch.rand(2, dtype=torch.float64), normal(2, 50), []
    for chunk in (module.CHUNK, 24):
        monkeypatch.setattr(module, "CHUNK", chunk)
        K = dplr_kernel(dt, poles, P, B, C, 50)
        found.append([K, *torch.autograd.grad((K * weight).sum(), poles)])
    assert all((p - q).abs().max() <= 1e-9 for p, q in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["s4", "s4d", "s5", "lssl", "lmu"])
def test_trained_at_one_rate_run_at_another(name):
    torch.manual_seed(0)
    mixer = mixers.create(name, 4, **({"theta": 1000.0} if name == "lmu" else {})).double()
    weight = torch.rand(4, dtype=torch.float64) + 0.5

    def at_rate(samples):
        time = (torch.arange(samples, dtype=torch.float64) + 0.5) / samples
        return smooth(time[:, None] * weight)[None]

    with torch.no_grad():
        once = mixer(at_rate(400))[0][:, 1::2]
        half = mixer(at_rate(200), None, None, 2.0)[0]
        irregular = mixer(at_rate(200), None, None, torch.full((1, 200), 2.0, dtype=torch.float64))[0]
        wrong = mixer(at_rate(200))[0]
    scale = once.std()
    assert (half - irregular).abs().max() < 1e-9
    assert (half - once).abs().mean() < 0.1 * scale
    assert (half - once).abs().mean() < 0.5 * (wrong - once).abs().mean()


def test_s4_is_one_state_space_a_channel():
    D, N = 3, 4
    poles = torch.complex(-torch.rand(D, N) - 0.1, torch.randn(D, N))
    P, B, C = (torch.complex(torch.randn(D, N), torch.randn(D, N)) for _ in range(3))
    u = torch.randn(1, 20, D, requires_grad=True)
    y, _ = dplr(u, torch.rand(D), poles, P, B, C)
    (g,) = torch.autograd.grad(y[..., 0].sum(), u)
    assert bool(g[..., 0].any()) and not bool(g[..., 1:].any())
    both = lw.mixer.Bidirectional(mixers.create("s4", 4), mixers.create("s4", 4))
    assert both(torch.randn(2, 9, 4))[0].shape == (2, 9, 4)


def test_algorithm_1_has_its_shapes_and_two_forms():
    B, L, D, N = 2, 30, 3, 4
    x, A, b, c = normal(B, L, D), -torch.rand(D, N, dtype=torch.float64) - 0.1, normal(D, N), normal(D, N)
    delta, h = torch.rand(D, dtype=torch.float64), normal(B, D, N)
    with use("reference"):
        y, last = ssm(x, A, b, c, delta, h)
    assert y.shape == (B, L, D) and last.shape == (B, D, N)
    with use("torch.convolution"):
        convolved, last_too = ssm(x, A, b, c, delta, h)
    assert (y - convolved).abs().max() <= 1e-9
    assert (last - last_too).abs().max() <= 1e-9
    with pytest.raises(Exception, match=r"(?i)type|shape"):
        ssm(x, A, b.expand(B, L, D, N)[..., 0, :], c, delta)


def test_algorithm_2_is_a_loop_and_reduces_to_algorithm_1():
    B, L, D, N = 2, 30, 3, 4
    A = (-torch.rand(D, N, dtype=torch.float64) - 0.1).requires_grad_()
    x, b, c = (normal(B, L, k).requires_grad_() for k in (D, N, N))
    delta, h0 = torch.rand(B, L, D, dtype=torch.float64).requires_grad_(), normal(B, D, N).requires_grad_()
    y, last = selective_ssm(x, A, b, c, delta, h0)
    h, ys = h0, []
    for t in range(L):
        step = delta[:, t, :, None]
        h = torch.exp(step * A) * h + (torch.exp(step * A) - 1) / A * b[:, t, None] * x[:, t, :, None]
        ys.append((h * c[:, t, None]).sum(-1))
    wanted = torch.stack(ys, 1)
    assert (y - wanted).abs().max() <= 1e-9
    assert (last - h).abs().max() <= 1e-9
    inputs, weight = [x, A, b, c, delta, h0], normal(B, L, D)
    mine, right = (torch.autograd.grad((out * weight).sum(), inputs) for out in (y, wanted))
    assert all((p - q).abs().max() <= 1e-9 for p, q in zip(mine, right, strict=True))

    b, c, delta = normal(N), normal(N), torch.rand(D, dtype=torch.float64)
    selected, _ = selective_ssm(x, A, b.expand(B, L, N), c.expand(B, L, N), delta.expand(B, L, D))
    fixed, _ = ssm(x, A, b.expand(D, N), c.expand(D, N), delta)
    assert (selected - fixed).abs().max() <= 1e-9


@pytest.mark.parametrize("L", [3, 31, 64, 100])
def test_the_parallel_scan_takes_any_length(L):
    a = torch.rand(2, L, 3, dtype=torch.float64, requires_grad=True)
    b, weight = normal(2, L, 3).requires_grad_(), normal(2, L, 3)
    found = []
    for form in ("reference", "torch.blocks"):
        with use(form):
            y, _ = linear_scan(a, b)
        found.append([y, *torch.autograd.grad((y * weight).sum(), [a, b])])
    assert all((p - q).abs().max() <= 1e-9 for p, q in zip(*found, strict=True))


@pytest.mark.parametrize("name", LINEAR)
def test_trained_in_parallel_run_step_by_step(name, tmp_path):
    mixer = mixers.create(name, 8)
    x = torch.randn(2, 24, 8)
    with torch.no_grad():
        whole, _ = mixer(x)
        state, ys = mixer.init_state(2), []
        for t in range(24):
            if t == 12:  # a new process goes on
                state.save(tmp_path / "state")
                torch.save(mixer.state_dict(), tmp_path / "weights")
                mixer = mixers.create(name, 8)
                mixer.load_state_dict(torch.load(tmp_path / "weights"))
                state = State.load(tmp_path / "state", like=mixer.init_state(1))
            y, state = mixer(x[:, t : t + 1], state)
            ys.append(y)
    assert (torch.cat(ys, 1) - whole).abs().max() <= 1e-4


def test_the_last_memory_of_lmu_needs_no_other():
    A, B = transition("lmu", 6)
    Ad, Bd = discretize(A, B[:, None], 1 / 9)
    u, h, lengths = normal(3, 40, 2), normal(3, 2, 6), torch.tensor([40, 0, 17])
    _, wanted = dense_lti(u, Ad[None], Bd[None, :, 0], None, h, lengths)
    squares = squarings(Ad[None], 40)
    found = final_state(u, squares, impulse(squares, Bd[None, :, 0], 40), h, lengths)
    assert (found - wanted).abs().max() <= 1e-9
