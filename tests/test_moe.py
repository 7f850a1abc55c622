"""What a mixture of experts is held to: its gates, its balance, pads that are never routed, a capacity that is kept."""

from math import exp, log
from statistics import NormalDist, mean, pstdev

import pytest
import torch

from longwave import mixers
from longwave.chunked import chunked
from longwave.errors import UserError
from longwave.record import aux_losses, recording
from longwave.tolerance import TOLERANCE, apart


def test_gates_sum_to_one():
    for gate in ("softmax", "sigmoid"):
        layer = mixers.create("moe", 8, gate=gate, top_k=3).double()
        chosen, gates = layer._route(torch.randn(20, 8, dtype=torch.float64))
        assert (gates.sum(-1) - 1).abs().max() < 1e-12
        assert all(len(set(row)) == 3 for row in chosen.tolist())


@pytest.mark.parametrize("kind", ["swiglu", "relu"])
def test_one_expert_is_a_dense_network(kind):
    layer = mixers.create("moe", 8, n_experts=1, top_k=1, d_hidden=16, kind=kind)
    dense = mixers.create("ffn", 8, d_hidden=16, kind=kind)
    with torch.no_grad():
        dense.project.weight.copy_(layer.W_in[0])
        dense.out.weight.copy_(layer.W_out[0])
    x = torch.randn(2, 9, 8)
    assert (layer(x)[0] - dense(x)[0]).abs().max() <= 1e-6


def test_the_balance_loss_reaches_every_expert_and_is_least_when_even():
    layer = mixers.create("moe", 8, balance=1.0)
    with aux_losses() as terms:
        layer(torch.randn(2, 9, 8))
    (term,) = terms
    assert not term.per_token
    term.total.backward()
    assert layer.router.grad.abs().sum(-1).all()
    with torch.no_grad(), aux_losses() as terms:
        layer.router.zero_()
        layer(torch.randn(2, 9, 8))
        layer.router[:2] = 9.0  # all to two experts
        layer(torch.ones(2, 9, 8))
    assert terms[0].total.item() == pytest.approx(1.0, rel=1e-5)
    assert terms[1].total.item() == pytest.approx(4.0, rel=1e-3)


def test_pads_are_not_routed():
    layer = mixers.create("moe", 8)
    with recording(layer) as tape, aux_losses() as padded:
        layer(torch.randn(3, 7, 8), None, torch.tensor([7, 0, 2]))
    assert tape["/load"].sum() == 2 * 9
    with aux_losses() as none:
        layer(torch.randn(1, 7, 8), None, torch.tensor([0]))
    assert len(padded) == 1
    assert not none


def test_a_capacity_couples_rows_in_training_and_only_then():
    layer = mixers.create("moe", 8, n_experts=4, top_k=1, capacity=1.0)
    assert layer.couples == ("rows", "times")
    assert mixers.create("moe", 8).couples == ()
    x = torch.ones(1, 8, 8) + 0.01 * torch.randn(1, 8, 8)  # all want the same expert, which takes 8 / 4 of them
    answered = layer.train()(x)[0].abs().sum(-1).gt(0)
    assert answered.tolist() == [[True] * 2 + [False] * 6]
    assert layer.eval()(x)[0].abs().sum(-1).gt(0).all()


def test_rebalancing_moves_tokens_to_idle_experts_without_changing_gates():
    layer = mixers.create("moe", 8, gate="sigmoid", n_experts=4, top_k=1).double()
    x = torch.ones(1, 64, 8) + torch.randn(1, 64, 8)
    x = x.double()
    loads = []
    for _ in range(300):
        with recording(layer) as tape, torch.no_grad():
            layer(x)
        loads.append(tape["/load"])
        layer.rebalance(loads[-1], rate=0.01)
    assert loads[-1].std() < 0.5 * loads[0].std()
    assert (layer._route(x[0])[1] == 1).all()  # the bias chooses, and is no part of the gate


def test_importance_and_load_are_those_of_the_formulas():
    """Shazeer et al. 2017, eq. 6 to 11, of two tokens whose scores are (2, 1, 0) and (0, 3, 1), noise of deviation ln 2
    not drawn, two experts of three chosen; what each score has to beat, the second best of the others, by hand.
    """
    layer = mixers.create("moe", 2, n_experts=3, gate="noisy", balance=0.1).double().eval()
    with torch.no_grad():
        layer.router.copy_(torch.tensor([[2.0, 0.0], [1.0, 3.0], [0.0, 1.0]]))
    with aux_losses() as terms:
        layer(torch.eye(2, dtype=torch.float64)[None])
    a, b = 1 / (1 + exp(-1)), 1 / (1 + exp(-2))
    importance = [a, 1 - a + b, 1 - b]
    beats = [[2 - 0, 1 - 0, 0 - 1], [0 - 1, 3 - 0, 1 - 0]]
    load = [sum(NormalDist(0, log(2)).cdf(token[e]) for token in beats) for e in range(3)]
    wanted = {"importance": importance, "load": load}
    assert [term.name for term in terms] == list(wanted)
    for term in terms:
        amounts = wanted[term.name]
        assert not term.per_token
        assert abs(term.total.item() - 0.1 * (pstdev(amounts) / mean(amounts)) ** 2) <= 1e-6


def test_noise_is_drawn_in_training_and_replayed_in_chunks():
    layer, x = mixers.create("moe", 8, gate="noisy"), torch.randn(2, 9, 8, requires_grad=True)
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])
    assert not torch.equal(layer.train()(x)[0], layer(x)[0])

    def gradients(y):
        return [y, *torch.autograd.grad(y.square().sum(), [x, layer.router, layer.noise])]

    torch.manual_seed(5)
    whole = gradients(torch.cat([layer(piece)[0] for piece in x.split(4, 1)], 1))
    torch.manual_seed(5)
    for got, wanted in zip(gradients(chunked(layer, x, chunk=4)[0]), whole, strict=True):
        assert apart(got, wanted) <= TOLERANCE[torch.float32]
    with pytest.raises(UserError, match="more experts than top_k"):
        mixers.create("moe", 8, gate="noisy", n_experts=2)


def test_groups_limit_where_a_token_goes():
    layer = mixers.create("moe", 8, n_experts=8, top_k=2, n_groups=4, top_groups=1)
    chosen, _ = layer._route(torch.randn(50, 8))
    assert torch.equal(chosen[:, 0] // 2, chosen[:, 1] // 2)
    with pytest.raises(UserError, match="cannot be chosen"):
        mixers.create("moe", 8, n_experts=8, top_k=3, n_groups=4, top_groups=1)


def test_absorbed_and_expanded_latent_attention_are_one():
    """One token a time is absorbed, the whole sequence expanded; the state is the latent and one rotary key."""
    layer = mixers.create("mla", 32, n_heads=4, d_latent=16, d_key=8, d_rope=4).double()
    x, state, steps = torch.randn(2, 40, 32, dtype=torch.float64), layer.init_state(2), []
    for t in range(40):
        y, state = layer(x[:, t : t + 1], state)
        steps.append(y)
    assert apart(torch.cat(steps, 1), layer(x)[0]) <= TOLERANCE[torch.float64]
    assert layer.init_state(2, capacity=100).c.shape == (2, 100, 16 + 4)
