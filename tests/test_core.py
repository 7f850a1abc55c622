"""Names, specs, hints, records and errors: what the user touches first."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import longwave as lw
from longwave import mixers
from longwave.dims import LEGEND
from longwave.errors import UserError, check_divides, nearest
from longwave.hints import hint, hints
from longwave.mixer import Bidirectional, Mixer, reverse
from longwave.registry import check_options, schema
from longwave.train.plan import Plan


def test_public_names():
    assert "mamba" in lw.list_mixers()
    assert {"attention", "linear_attention"} <= set(lw.list_mixers("*attention"))
    assert "lm" in lw.list_models()
    assert isinstance(lw.create_mixer("gla", d_model=8), lw.Mixer)
    assert lw.ops.linear_scan.name == "linear_scan"
    for name in lw.__all__:
        assert getattr(lw, name) is not None
    with pytest.raises(AttributeError, match="did you mean 'create_mixer'"):
        _ = lw.create_mixr


def test_a_function_and_its_module_may_share_a_name():
    import longwave.generate.loop
    import longwave.record  # noqa: F401

    assert callable(lw.generate)
    assert callable(lw.record)
    assert lw.generate is sys.modules["longwave.generate.loop"].generate


def seconds(code):
    clock = "time.process_time()"  # what else the machine does is not its cost
    script = f"import time; t = {clock}; {code}; print({clock} - t)"
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    return min(float(run.stdout.split()[-1]) for run in runs)


def test_import_costs_no_more_than_torch():
    assert seconds("import longwave") < 0.2
    everything = "import torch; t = time.process_time(); import longwave as lw; [getattr(lw, n) for n in lw.__all__]"
    assert seconds(everything) < 0.5


def test_options_are_strict():
    for wrong, words in [
        (dict(n_head=2), "no option 'n_head': did you mean 'n_heads'"),
        (dict(n_heads="2"), "n_heads must be int, got '2'"),
        (dict(n_heads=True), "n_heads must be int, got True"),
        (dict(position="ropes"), "'rope' or 'alibi' or 't5' or 'none', got 'ropes'"),
        (dict(n_heads=3), "d_model=8 cannot be split into n_heads=3 equal parts: n_heads could be 1, 2, 4, 8"),
        (dict(window=0), "window must be positive"),
    ]:
        with pytest.raises(UserError, match=words):
            lw.create_mixer("attention", d_model=8, **wrong)
    with pytest.raises(UserError, match="unknown mixer 'mambo': did you mean 'mamba'"):
        lw.create_mixer("mambo", d_model=8)


def test_the_schema_is_the_signature_with_its_comments():
    options = {o.name: o for o in schema(mixers.registry.get("attention"))}
    assert options["n_heads"].default == 4
    assert options["n_heads"].type is int
    assert "queries" in options["n_heads"].help
    unexplained = [(name, o.name) for name in mixers.names() for o in schema(mixers.registry.get(name)) if not o.help]
    assert not unexplained
    assert all(o.help for o in schema(Plan))


def test_what_is_required_must_be_given():
    with pytest.raises(UserError, match="needs the option 'n_classes'"):
        lw.create_model("classifier", vocab=4)


def test_a_mixer_of_ones_own_can_be_registered():
    class Mine(mixers.registry.get("ffn")):
        """My own."""

    try:
        lw.register_mixer(Mine, "mine")
        assert "mine" in lw.list_mixers()
        assert mixers.registry.summary("mine") == "My own."
        assert lw.create_model("lm", mixer="mine", d_model=8, n_layers=1).n_parameters
        with pytest.raises(UserError, match="there is a mixer 'gla' already"):
            lw.register_mixer(Mine, "gla")
    finally:
        mixers.registry.added.clear()


def test_specs_are_frozen_and_go_through_json():
    spec = lw.Spec("lm", mixer=lw.Spec("gla", n_heads=2), blocks=[[lw.Spec("ffn"), 1.5], None], tied=True)
    assert lw.Spec.from_json(spec.to_json()) == spec
    assert spec.but(tied=False) != spec
    assert eval(repr(spec), {"Spec": lw.Spec}) == spec
    with pytest.raises(AttributeError, match="frozen"):
        spec.name = "other"
    with pytest.raises(UserError, match="holds a Tensor"):
        lw.Spec("x", weight=torch.ones(1))
    for bad in ({}, {"name": 3, "options": {}}, {"name": "x", "options": {}, "more": 1}, [], "lm", None):
        with pytest.raises(UserError, match="a spec is"):
            lw.Spec.from_json(bad)


def test_hints_survive_copies_and_decide_the_groups():
    import copy

    mamba = copy.deepcopy(lw.create_mixer("mamba", d_model=8))
    told = {name: wish for name, _, wish in hints(mamba)}
    assert told["log_A"].float32
    assert not told["log_A"].decay
    assert told["out.weight"].residual
    assert not told["conv_bias"].decay
    groups = lw.param_groups(lw.create_mixer("s4d", d_model=8), lr=1e-2, decay=0.1)
    assert sorted({(g["lr"], g["weight_decay"]) for g in groups}) == [(1e-3, 0.0), (1e-2, 0.0), (1e-2, 0.1)]
    with pytest.raises(KeyError, match="no parameter 'nothing'"):
        hint(mamba, "nothing", decay=False)


def test_half_precision_spares_what_must_stay_exact():
    mamba = lw.create_mixer("mamba", d_model=8)
    exact = mamba.log_A.detach().clone()
    mamba.to(torch.bfloat16)
    assert mamba.log_A.dtype is torch.float32
    assert torch.equal(mamba.log_A, exact)
    assert mamba.conv.dtype is torch.bfloat16
    assert mamba.double().log_A.dtype is torch.float64


def test_recording_tells_which_module_it_was():
    model = lw.create_model("lm", d_model=8, n_layers=2).eval()
    tokens = torch.randint(256, (1, 5))
    with lw.recording(model) as seen:
        y, _ = model(tokens)
    weights = seen["backbone.1.0.mixer/weights"]
    assert weights.shape == (1, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, 5))
    assert torch.allclose(y, model(tokens)[0], atol=1e-5)
    with lw.recording() as nothing:
        pass
    assert not nothing


def test_recording_computes_only_when_somebody_looks():
    def fail():
        raise AssertionError

    lw.record("unseen", fail)
    with lw.recording() as seen:
        lw.record("twice", torch.ones(1))
        lw.record("twice", torch.zeros(1))
    assert list(seen) == ["twice", "twice#2"]


def test_auxiliary_losses_carry_gradient_to_whoever_collects():
    w = torch.ones(2, requires_grad=True)
    lw.aux_loss("lost", w.sum())
    with lw.aux_losses() as terms:
        lw.aux_loss("balance", w * 3, per_token=False)
    assert [(t.name, t.per_token) for t in terms] == [("balance", False)]
    terms[0].total.backward()
    assert w.grad.tolist() == [3, 3]


def test_the_door():
    ffn = lw.create_mixer("ffn", d_model=8)
    x = torch.randn(2, 3, 8)
    for arguments, words in [
        ((x[0],), "shape|B T D"),
        ((x[:, :0],), "time >= 1"),
        ((x, None, torch.tensor([4, 1])), "numbers from 0 to 3, got"),
        ((x, None, torch.tensor([-1, 1])), "numbers from 0 to 3"),
        ((x, None, None, 2.0), "no notion of time"),
    ]:
        with pytest.raises((UserError, Exception), match=words):
            ffn(*arguments)
    fnet = lw.create_mixer("fnet", d_model=8)
    with pytest.raises(UserError, match="has no state"):
        fnet(x, ffn.init_state(2))
    with pytest.raises(UserError, match="memory"):
        lw.create_mixer("cross", d_model=8)(x)


def test_reverse_turns_each_row_by_its_own_length():
    x = torch.tensor([[1, 2, 3, 4], [1, 2, 0, 0]])
    assert reverse(x, torch.tensor([4, 2])).tolist() == [[4, 3, 2, 1], [2, 1, 0, 0]]
    gaps = torch.tensor([[1.0, 2, 3, 4]])  # backwards, the gap before sample 2 is the one after it: that of sample 3
    assert reverse(gaps, None, shift=1).tolist() == [[1, 4, 3, 2]]


def test_bidirectional_sees_both_ways():
    both = Bidirectional(lw.create_mixer("gru", d_model=4), lw.create_mixer("s4d", d_model=4))
    x = torch.randn(1, 5, 4, requires_grad=True)
    y, state = both(x, None, None, 2.0)
    assert state is None
    (seen,) = torch.autograd.grad(y[0, 2].sum(), x)
    assert (seen.abs().sum(-1) > 0).all()


def test_errors_name_the_nearest():
    assert nearest("atention", ["attention", "gla"]) == "did you mean 'attention'?"
    assert nearest("zzz", ["b", "a"]) == "there is a, b"
    assert nearest("zzz", []) == "there is none"
    with pytest.raises(UserError, match="could be 1, 2, 3, 4, 6, 8, 12, 24"):
        check_divides("n_heads", 5, "d_model", 24)


def test_a_function_is_a_schema_too():
    def preset(*, depth: int, name: str = "x") -> None: ...

    check_options("preset", preset, {"depth": 3})
    with pytest.raises(UserError, match="preset: option depth must be int"):
        check_options("preset", preset, {"depth": 1.5})


def test_legend_has_a_meaning_for_every_letter():
    assert len(LEGEND) == len(set(LEGEND.values()))
    assert isinstance(Mixer(), nn.Module)
