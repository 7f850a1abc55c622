"""Sparse patterns: who reaches whom, what it costs, and where they are dense attention."""

import pytest
import torch

import longwave as lw
from longwave import mixers
from longwave.spec import Spec
from longwave.tolerance import TOLERANCE, apart
from test_attention import saved_bytes


def reaches(layer, T):
    """[T, T]: whether output t depends on input s."""
    x = torch.randn(1, T, layer.out.in_features, dtype=torch.float64, requires_grad=True)
    y, _ = layer.double()(x)
    found = [torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for t in range(T)]
    return torch.stack(found).double()


@pytest.mark.parametrize("kind", ["strided", "fixed"])
def test_two_sparse_layers_reach_all_of_the_past(kind):
    layer = mixers.create("sparse_transformer", 8, kind=kind, stride=6, n_columns=2, n_heads=2)
    T = 30
    one = reaches(layer, T)
    two = (one @ one > 0).tril()
    assert one.sum() < 0.7 * T * (T + 1) / 2
    assert two.sum() == T * (T + 1) / 2


@pytest.mark.parametrize(("name", "options"), [("longformer", dict(window=16)), ("bigbird", dict(block=16))])
def test_memory_is_linear(name, options):
    layer = mixers.create(name, 16, **options)
    one, four = (saved_bytes(lambda T=T: layer(torch.randn(1, T, 16))[0]) for T in (512, 2048))
    assert four <= 1.1 * 4 * one


def test_wide_patterns_are_dense_attention():
    dense = mixers.create("attention", 8, position="none", causal=False).double()
    x, lengths = torch.randn(2, 21, 8, dtype=torch.float64), torch.tensor([21, 9])
    wanted, _ = dense(x, None, lengths)
    for name, options in (("longformer", dict(n_global=0, window=21)), ("bigbird", dict(block=7, n_random=0))):
        layer = mixers.create(name, 8, **options).double()
        missing = layer.load_state_dict(dense.state_dict(), strict=False)
        assert missing.missing_keys in ([], ["draws"])
        y, _ = layer(x, None, lengths)
        for b, n in enumerate(lengths.tolist()):
            assert apart(y[b, :n], wanted[b, :n]) <= TOLERANCE[torch.float64], name


def test_random_blocks_are_those_of_the_seed_and_are_kept():
    plans = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        layer = mixers.create("bigbird", 8)
        plans.append(layer.sees(torch.tensor([40]), 40))
        assert torch.equal(plans[-1], layer.eval().sees(torch.tensor([40]), 40))
        assert torch.equal(plans[-1], layer.half().sees(torch.tensor([40]), 40))
    assert torch.equal(plans[0], plans[1])
    assert not torch.equal(plans[0], plans[2])
    middle = plans[0][0, 20].tolist()
    assert len(set(middle)) == 8  # three neighbours, two global, three random
    assert {0, 19, 20, 21, 39} < set(middle)


def test_gpt3_alternates_dense_and_banded_layers():
    model = lw.create_model("gpt3", d_model=8, n_layers=4, n_heads=2, context=32, vocab=40, window=5).double().eval()
    windows = [layer.parts()[0].mixer.window for layer in model.backbone.parts()[1:]]
    assert windows == [None, 5, None, 5]
    tokens = torch.randint(40, (2, 20))
    wide, dense = (
        lw.create_model(
            "gpt3" if wide else "gpt2", d_model=8, n_layers=4, n_heads=2, context=32, vocab=40, **wide
        ).double().eval()
        for wide in (dict(window=20), {})
    )  # fmt: skip
    for other in (wide, dense):
        other.load_state_dict(model.state_dict())
    assert apart(wide(tokens)[0], dense(tokens)[0]) <= TOLERANCE[torch.float64]
    assert apart(model(tokens)[0], dense(tokens)[0]) > 1e-4
    assert model.spec.options["blocks"][2][0] == Spec(
        "attention", n_heads=2, position="none", bias=True, dropout=0.1, window=5
    )
