"""What recurrent networks are for and known for: gates, orthogonality, differential equations, vanishing gradients."""

import math

import pytest
import torch

import longwave as lw
from longwave import mixers
from longwave.errors import UserError
from longwave.mixers.gru import GRU
from longwave.mixers.lstm import LSTM
from longwave.ops.gated_cells import keep_gate, uniform_bias
from longwave.ops.log_signature import levels, log_signature, lyndon_words, product, signature_size
from longwave.parts.ode import ode_step
from longwave.probe.gradient import gradient_by_lag
from longwave.record import aux_losses
from longwave.tolerance import apart


def test_the_forget_bias_is_where_a_cell_starts_from():
    open_, shut = (LSTM(8, forget_bias=bias) for bias in (5.0, -5.0))
    for mixer, kept in ((open_, 1 / (1 + math.exp(-5))), (shut, 1 / (1 + math.exp(5)))):
        with torch.no_grad():
            mixer.U.zero_()
            state = mixer.init_state(1)
            _, after = mixer(torch.zeros(1, 1, 8), type(state)(state.h, torch.ones(1, 8)))
        assert torch.allclose(after.c, torch.full((1, 8), kept))


def test_the_refine_gate_moves_the_keep_gate_within_its_band():
    f, r = torch.randn(1000, dtype=torch.float64) * 3, torch.randn(1000, dtype=torch.float64) * 3
    sf, sr = torch.sigmoid(f), torch.sigmoid(r)
    by_formula = sr * (1 - (1 - sf) ** 2) + (1 - sr) * sf**2
    assert (keep_gate(f, r) - by_formula).abs().max() <= 1e-7
    assert (keep_gate(f, torch.full_like(f, 40.0)) - (1 - (1 - sf) ** 2)).abs().max() <= 1e-7  # forgets less
    assert (keep_gate(f, torch.full_like(f, -40.0)) - sf**2).abs().max() <= 1e-7  # and more
    assert torch.equal(keep_gate(f), sf)


@pytest.mark.parametrize("name", ["urlstm", "urgru"])
def test_keep_gates_start_uniformly_spread(name):
    d = 512
    mixer = mixers.create(name, d)
    bias = mixer.b[:d] if name == "urlstm" else mixer.b[d : 2 * d]
    kept = torch.sigmoid(bias)
    assert 1 / d <= kept.min() and kept.max() <= 1 - 1 / d
    deciles = torch.histc(kept, 10, 0, 1) / d
    assert (deciles - 0.1).abs().max() < 0.05
    assert torch.equal(mixer.b[-d:], -bias)
    assert uniform_bias(1).isfinite().all()


def test_without_their_changes_the_refined_cells_are_the_plain_ones():
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    for name, plain, off in (
        ("urlstm", LSTM, dict(refine=False, uniform=False, tied=False)),
        ("urgru", GRU, dict(refine=False, uniform=False)),
    ):
        torch.manual_seed(5)
        right = plain(8).double()
        torch.manual_seed(5)
        ours = mixers.create(name, 8, **off).double()
        with lw.ops.use("reference"):
            torch.testing.assert_close(ours(x)[0], right(x)[0], rtol=1e-12, atol=1e-12)


def test_gradients_vanish_in_an_rnn_and_not_in_attention():
    x = torch.randn(4, 65, 8)
    rnn, attention = (gradient_by_lag(mixers.create(name, 8), x) for name in ("rnn", "attention"))
    assert rnn.shape == (65,)
    assert rnn[64] < 1e-4 * rnn[1]
    per_step = (rnn[40] / rnn[8]) ** (1 / 32)
    assert per_step < 0.9  # exponentially
    assert attention[1:].min() > 0.2 * attention[1:].max()


def test_gradients_of_a_linear_rnn_are_powers_of_its_matrix():
    rnn = mixers.create("rnn", 6, activation="relu").double()
    with torch.no_grad():
        rnn.U.abs_()
        rnn.W.abs_()
    found = gradient_by_lag(rnn, torch.rand(3, 12, 6, dtype=torch.float64))  # all positive: relu does nothing
    for lag in range(12):
        jacobian = (torch.matrix_power(rnn.U, lag) @ rnn.W).detach()
        assert float(found[lag]) == pytest.approx(float(jacobian.norm()))


def test_the_gradient_probe_takes_models_and_estimates_wide_ones():
    model = lw.create_model("lm", mixer="gla", d_model=16, n_layers=1)
    tokens = torch.randint(256, (2, 20))
    exact = gradient_by_lag(model, tokens, directions=16)
    assert exact.shape == (20,) and bool((exact > 0).all())
    guessed = torch.stack([gradient_by_lag(model, tokens, directions=4) for _ in range(40)]).square().mean(0).sqrt()
    assert (guessed / exact - 1).abs().max() < 0.25


def test_an_exprnn_stays_orthogonal_however_long_it_trains():
    mixer = mixers.create("exprnn", 12)
    x, target = torch.randn(4, 6, 12), torch.randn(4, 6, 12)
    before = mixer.orthogonal().detach()
    optimizer = torch.optim.Adam(mixer.parameters(), lr=1e-2)
    for _ in range(1000):
        optimizer.zero_grad()
        (mixer(x)[0] - target).square().mean().backward()
        optimizer.step()
    Q = mixer.orthogonal().detach()
    assert (Q - before).abs().max() > 0.1
    assert (Q @ Q.T - torch.eye(12)).abs().max() <= 1e-6
    assert torch.linalg.det(Q) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("init", ["cayley", "henaff"])
def test_an_exprnn_starts_by_turning_planes(init):
    Q = mixers.create("exprnn", 8, init=init).double().orthogonal()
    angles = torch.linalg.eigvals(Q).angle().abs().sort().values
    assert (angles[::2] - angles[1::2]).abs().max() < 1e-9
    assert angles.min() > 0
    assert angles.max() < (math.pi / 2 if init == "cayley" else math.pi)


@pytest.mark.parametrize(("beta", "gamma"), [(0.5, 0.1), (0.75, 0.001), (1.0, 0.3)])
def test_the_symmetric_part_of_a_lipschitz_rnn_bounds_how_it_grows(beta, gamma):
    mixer = mixers.create("lipschitz_rnn", 10, beta=beta, gamma=gamma).double()
    for M, A in zip(mixer.M, mixer.matrices(), strict=True):
        bounds = (1 - beta) * torch.linalg.eigvalsh(M + M.T) - gamma
        rates = torch.linalg.eigvals(A).real
        assert bounds.min() - 1e-9 <= rates.min() and rates.max() <= bounds.max() + 1e-9
        assert ((A + A.T) / 2 - ((1 - beta) * (M + M.T) - gamma * torch.eye(10).double())).abs().max() <= 1e-9


def reconstruction(mixer, x, cuts):
    """The auxiliary loss of x, cut into pieces."""
    state = mixer.init_state(len(x))
    with aux_losses() as terms:
        for piece in x.split(cuts, 1):
            _, state = mixer(piece, state)
    assert all(term.per_token for term in terms)
    return sum(term.total for term in terms)


def test_an_rlstm_without_its_loss_is_an_lstm():
    plain, ours = LSTM(8), mixers.create("rlstm", 8, weight=0.0)
    ours.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 9, 8)
    with lw.ops.use("reference"), aux_losses() as terms:
        assert torch.equal(ours(x)[0], plain(x)[0])
    assert not terms


def test_the_reconstruction_is_the_same_however_the_sequence_is_cut():
    mixer = mixers.create("rlstm", 6, segment=5, rate=1.0).double()
    x = torch.randn(2, 14, 6, dtype=torch.float64, requires_grad=True)
    of = [x, *mixer.parameters()]
    whole = reconstruction(mixer, x, [14])
    wanted = torch.autograd.grad(whole, of)
    for cuts in ([7, 7], [1] * 14, [3, 9, 2]):
        lost = reconstruction(mixer, x, cuts)
        assert apart(lost, whole) <= 1e-9
        for got, right in zip(torch.autograd.grad(lost, of), wanted, strict=True):
            assert apart(got, right) <= 1e-9


def test_the_reconstruction_reaches_a_segment_back_and_no_further():
    mixer = mixers.create("rlstm", 6, segment=4, rate=1.0)
    x = torch.randn(1, 12, 6)
    early, late = x[:, :11].requires_grad_(), x[:, 11:].requires_grad_()
    state = mixer.init_state(1)
    _, state = mixer(early, state)
    with aux_losses() as terms:
        mixer(late, state)
    (seen,) = torch.autograd.grad(terms[0].total, early)
    assert bool((seen[:, 8:].abs().amax(-1) > 0).all()) and not seen[:, :8].any()


def test_an_rlstm_learns_to_keep_its_past():
    mixer = mixers.create("rlstm", 8, segment=4, rate=0.5)
    optimizer = torch.optim.Adam(mixer.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        x = torch.sign(torch.randn(16, 12, 8)[..., :1]).expand(-1, -1, 8)  # a bit a token
        optimizer.zero_grad()
        lost = reconstruction(mixer, x, [12]) / (16 * 12)
        lost.backward()
        optimizer.step()
        losses.append(float(lost.detach()))
    assert losses[0] > 0.6 and sum(losses[-10:]) / 10 < 0.3


def test_an_ode_rnn_whose_field_is_zero_is_a_gru():
    plain, ours = GRU(8), mixers.create("ode_rnn", 8)
    with torch.no_grad():
        ours.field_out.weight.zero_()
        ours.field_out.bias.zero_()
    ours.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 9, 8)
    with lw.ops.use("reference"):
        for dt in (1.0, torch.rand(2, 9)):
            assert torch.equal(ours(x, None, None, dt)[0], plain(x)[0])


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_solvers_have_their_order(solver, order):
    def turn(h):  # once around in 2 pi units of time
        return h.square().sum() * torch.stack([-h[1], h[0]])

    def error(n):
        h = torch.tensor([1.0, 0.0], dtype=torch.float64)
        for _ in range(n):
            h = ode_step(turn, h, torch.tensor(1 / n, dtype=torch.float64), solver)
        return float((h - torch.tensor([math.cos(1), math.sin(1)], dtype=torch.float64)).norm())

    assert math.log2(error(32) / error(64)) == pytest.approx(order, abs=0.2)


def whole(points, depth):
    """The log-signature of a path through these points."""
    dx = torch.as_tensor(points, dtype=torch.float64).diff(dim=0)[None]
    return log_signature(dx, torch.zeros(dx.shape[:2], dtype=torch.bool), depth)[0][0, -1]


def test_log_signatures_of_paths_worked_by_hand():
    corner = [(0, 0), (1, 0), (1, 1)]  # log(exp(x) exp(y)) = x + y + [x, y] / 2 + [x, [x, y]] / 12 + [y, [y, x]] / 12
    assert torch.allclose(whole(corner, 3), torch.tensor([1, 1, 1 / 2, 1 / 12, 1 / 12]).double(), atol=1e-7)
    line = [(0, 0, 0), (1, 2, 3), (1.5, 3, 4.5), (3, 6, 9)]
    assert torch.allclose(whole(line, 3), torch.tensor([3.0, 6, 9] + [0] * 11).double())
    loop = [(0, 0), (2, 0), (2, 3), (0, 3), (0, 0)]  # counterclockwise: nowhere, but around an area of 6
    assert torch.allclose(whole(loop, 2), torch.tensor([0.0, 0, 6]).double())
    assert [len(words) for words in lyndon_words(3, 3)] == [3, 3, 8]


def test_log_signatures_see_the_path_and_not_its_speed_and_change_sign_when_it_turns_back():
    points = torch.randn(6, 3, dtype=torch.float64)
    finer = torch.stack([points[:-1], (0.3 * points[:-1] + 0.7 * points[1:])], 1).flatten(0, 1)
    assert apart(whole(torch.cat([finer, points[-1:]]), 3), whole(points, 3)) <= 1e-12
    assert apart(whole(points.flip(0), 3), -whole(points, 3)) <= 1e-12


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_signatures_of_joined_paths_multiply(depth):
    dx = torch.randn(2, 11, 3, dtype=torch.float64)
    never, none = torch.zeros(2, 11, dtype=torch.bool), torch.zeros(2, signature_size(3, depth), dtype=torch.float64)
    parts = [log_signature(piece, never[:, : piece.shape[1]], depth, none)[1] for piece in dx.split([4, 7], 1)]
    joined = log_signature(dx, never, depth, none)[1]
    assert apart(torch.cat(product(*(levels(part, 3, depth) for part in parts)), -1), joined) <= 1e-12


def test_log_signatures_no_deeper_than_worked_out():
    with pytest.raises(UserError, match="depth 1, 2 or 3, not 4"):
        signature_size(2, 4)


@pytest.mark.parametrize("name", ["*rnn", "*lstm", "*gru", "nrde", "sru", "ntm", "act", "attentive"])
def test_recurrent_networks_train_in_mixed_precision(name):
    for each in mixers.names(name):
        mixer, x = mixers.create(each, 8), torch.randn(2, 5, 8, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16), aux_losses() as terms:
            y, state = mixer(x, mixer.init_state(2), torch.tensor([5, 3]))
            y = y + mixer(x, state)[0]
        (y.float().sum() + sum(term.total for term in terms)).backward()
        assert y.isfinite().all() and x.grad.any(), each
        assert all(p.grad is None or p.grad.isfinite().all() for p in [x, *mixer.parameters()]), each
