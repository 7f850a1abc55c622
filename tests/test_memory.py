"""Networks with a memory: where a Turing machine's heads look, how long adaptive computation thinks."""

import pytest
import torch
import torch.nn.functional as F

from longwave import mixers
from longwave.errors import UserError
from longwave.mixers.ntm import address
from longwave.record import aux_losses, recording
from longwave.tolerance import apart


def told(strength=0.0, gate=0.0, sharp=-60.0, shift=(0.0, 60.0, 0.0)):
    """What a head is told beside its key: by default to use content, stay, and not sharpen."""
    return torch.tensor([[[strength, gate, sharp, *shift]]], dtype=torch.float64)


def test_heads_spread_weights_that_sum_to_one():
    machine = mixers.create("ntm", 8, n_heads=2, slots=5)
    with recording(machine) as seen:
        machine(torch.randn(3, 12, 8))
    weights = seen["/weights"] if "/weights" in seen else seen["weights"]
    assert weights.shape == (3, 12, 4, 5)
    assert bool((weights >= 0).all()) and (weights.sum(-1) - 1).abs().max() <= 1e-6


def test_a_strong_head_finds_the_slot_with_its_key():
    memory = torch.randn(1, 6, 4, dtype=torch.float64)
    before = torch.full((1, 1, 6), 1 / 6, dtype=torch.float64)
    for slot in range(6):
        w = address(memory, before, 3 * memory[:, slot : slot + 1], told(strength=200.0, gate=60.0))
        assert torch.allclose(w[0, 0], F.one_hot(torch.tensor(slot), 6).double(), atol=1e-6)


@pytest.mark.parametrize("moves", [3, 5])
def test_a_shift_is_a_circular_convolution(moves):
    memory, key = torch.randn(1, 7, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    before = torch.rand(1, 1, 7, dtype=torch.float64)
    before = before / before.sum()
    logits = torch.randn(moves, dtype=torch.float64)
    w = address(memory, before, key, told(gate=-60.0, shift=logits.tolist()))
    by_distance = torch.zeros(7, dtype=torch.float64)  # s(d) at d mod 7
    by_distance[torch.arange(moves) - moves // 2] = torch.softmax(logits, 0)
    by_fourier = torch.fft.ifft(torch.fft.fft(before[0, 0]) * torch.fft.fft(by_distance)).real
    assert torch.allclose(w[0, 0], by_fourier, atol=1e-12)


def test_a_head_walks_the_memory_and_comes_around():
    memory, key = torch.randn(1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    w = F.one_hot(torch.tensor([[0]]), 5).double()
    for t in range(1, 12):
        w = address(memory, w, key, told(gate=-60.0, shift=(0.0, 0.0, 60.0)))
        assert int(w.argmax()) == t % 5 and w.max() > 1 - 1e-9


def test_sharpening_undoes_what_a_shift_blurs():
    memory, key = torch.randn(1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    before = torch.tensor([[[0.1, 0.6, 0.3, 0.0, 0.0]]], dtype=torch.float64)
    sharp = address(memory, before, key, told(gate=-60.0, sharp=2.0))
    power = 1 + F.softplus(torch.tensor(2.0, dtype=torch.float64))
    assert torch.allclose(sharp, before**power / (before**power).sum(), atol=1e-12)
    assert sharp[0, 0, 1] > before[0, 0, 1]


def pondered(mixer, x, cuts, lengths=None):
    """The output, how many steps each token took, and the ponder cost, of x cut into pieces."""
    state, ys, steps = mixer.init_state(len(x)), [], []
    with aux_losses() as terms:
        for piece in x.split(cuts, 1):
            with recording() as seen:
                y, state = mixer(piece, state, lengths)
            ys.append(y)
            steps.append(seen["steps"])
    return torch.cat(ys, 1), torch.cat(steps, 1), sum(term.total for term in terms)


def thinker(**options):
    mixer = mixers.create("act", 8, **options).double()
    torch.nn.init.normal_(mixer.halt.weight, std=2)
    torch.nn.init.constant_(mixer.halt.bias, -0.5)
    return mixer


def test_tokens_take_from_one_to_the_most_steps_and_their_shares_sum_to_one():
    mixer, x = thinker(max_steps=6), torch.randn(4, 30, 8, dtype=torch.float64)
    _, steps, _ = pondered(mixer, x, [30])
    assert steps.min() >= 1 and steps.max() <= 6 and len(steps.unique()) > 2
    fixed = thinker(max_steps=6, mixer="rnn")
    with torch.no_grad():
        for p in fixed.mixer.parameters():
            p.zero_()
        fixed.mixer.b.fill_(0.7)  # every step of every token answers tanh(0.7)
    y, _, _ = pondered(fixed, x, [30])
    assert torch.allclose(y, torch.tanh(torch.tensor(0.7)).double().expand_as(y), atol=1e-7)


def test_where_anything_may_be_left_one_step_is_enough():
    plain, ours = mixers.create("gru", 8).double(), thinker(epsilon=1.0)
    ours.mixer.load_state_dict(plain.state_dict())
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    y, steps, cost = pondered(ours, x, [9])
    assert bool((steps == 1).all()) and float(cost.detach()) == pytest.approx(0.01 * 2 * 18)
    assert apart(y, plain(x + ours.first)[0]) <= 1e-12
    assert bool((pondered(thinker(max_steps=1), x, [9])[1] == 1).all())


def test_thinking_is_the_same_under_cuts_and_pads():
    mixer, x = thinker(), torch.randn(3, 12, 8, dtype=torch.float64)
    y, steps, cost = pondered(mixer, x, [12])
    for cuts in ([1] * 12, [5, 7]):
        again = pondered(mixer, x, cuts)
        assert apart(again[0], y) <= 1e-9 and torch.equal(again[1], steps) and apart(again[2], cost) <= 1e-9
    lengths = torch.tensor([12, 0, 5])
    alone = pondered(mixer, x[:1], [12])[2] + pondered(mixer, x[2:, :5], [5])[2]
    assert apart(pondered(mixer, x, [12], lengths)[2], alone) <= 1e-9


def test_a_price_on_thinking_makes_it_brief():
    mixer, x = thinker(max_steps=6, cost=1.0), torch.randn(8, 10, 8, dtype=torch.float64)
    before = pondered(mixer, x, [10])[1].mean()
    optimizer = torch.optim.Adam(mixer.halt.parameters(), lr=0.05)
    for _ in range(25):
        optimizer.zero_grad()
        pondered(mixer, x, [10])[2].backward()
        optimizer.step()
    assert pondered(mixer, x, [10])[1].mean() < before - 0.3


def test_what_cannot_be_averaged_is_told():
    for name in ("attention", "fnet"):
        with pytest.raises(UserError, match="can be averaged"):
            mixers.create("act", 8, mixer=name)
    with pytest.raises(UserError, match="asks as it goes"):
        mixers.create("attentive", 8, mixer="fnet")
