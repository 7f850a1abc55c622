"""The ten laws over every registered mixer and every value of its options; no skip lists, no special cases by name."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longwave import mixers
from longwave.laws import LAWS, Case, NotDeclared, Subject, check, gradients
from longwave.models.block import Backbone
from longwave.spec import Spec
from longwave.tolerance import apart
from variants import label, variants

LAW = {law.name: law.holds for law in LAWS}


@pytest.mark.parametrize("name", mixers.names())
def test_every_mixer_keeps_every_law_it_declares(name):
    report = check(name)
    assert report.ok, f"\n{report}"
    assert len(report.verdicts) == 10


@pytest.mark.parametrize("case", [v for v in variants() if v[1]], ids=label)
def test_options(case):
    name, options = case
    report = check(lambda d: mixers.create(name, d, **options), dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"


@st.composite
def cut_cases(draw):
    """A length, where to cut it, and how the rows stand."""
    T = draw(st.integers(2, 90))
    places = sorted(draw(st.sets(st.integers(1, T - 1), min_size=1, max_size=5)))
    cuts = tuple(b - a for a, b in zip([0, *places], [*places, T], strict=True))
    return Case(T=T, B=draw(st.integers(1, 3)), cuts=cuts, started=draw(st.booleans()), seed=draw(st.integers(0, 999)))


@st.composite
def ragged_cases(draw):
    T, B = draw(st.integers(2, 90)), draw(st.integers(1, 4))
    lengths = tuple(draw(st.lists(st.integers(0, T), min_size=B, max_size=B)))
    return Case(T=T, B=B, lengths=lengths, started=draw(st.booleans()), seed=draw(st.integers(0, 999)))


def hold(law: str, name: str, case: Case) -> None:
    subject = Subject(name)
    if not subject.causal:
        case = dataclasses.replace(case, started=False)
    try:
        LAW[law](subject, case)
    except NotDeclared:
        assert not subject.causal


@pytest.mark.parametrize("name", mixers.names())
@settings(max_examples=12)
@given(case=cut_cases())
def test_cut_anywhere(name, case):
    hold("split", name, case)


@pytest.mark.parametrize("name", mixers.names())
@settings(max_examples=12)
@given(case=ragged_cases())
def test_pad_by_anything(name, case):
    hold("padding", name, case)


@pytest.mark.parametrize("name", mixers.names())
@settings(max_examples=6)
@given(case=ragged_cases())
def test_backends_on_any_batch(name, case):
    hold("backends", name, case)


@pytest.mark.parametrize("name", mixers.names())
def test_trains_and_streams_under_autocast(name):
    subject = Subject(name)
    case = Case(T=20, B=2, dtype=torch.float32)
    mixer, x = subject.make(case, randomise=True), subject.x(case).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = mixer(x, subject.begins(mixer, case))
    assert y.isfinite().all()
    if y.requires_grad:
        for what, g in gradients(y.float().sum(), mixer, x, None):
            assert g is None or g.isfinite().all(), what
    if subject.causal:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            _, state = mixer(x[:, :7], subject.state(mixer, case))
            assert mixer(x[:, 7:], state)[0].isfinite().all()


@pytest.mark.parametrize("name", ["s4", "s4d", "s5", "lssl", "lmu", "exprnn"])
def test_long_memories_survive_autocast(name):
    subject = Subject(name)
    case = Case(T=200, B=2, dtype=torch.float32)
    mixer, x = subject.make(case), subject.x(case)
    exact, _ = mixer(x)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = mixer(x)
    assert apart(rounded.float(), exact) < 0.02


def hybrid(d_model: int) -> Backbone:
    blocks = [
        Spec("branch", mixer=Spec("positions"), norm="none"),
        [Spec("mamba"), Spec("ffn")],
        [Spec("attention", window=3), Spec("ffn", kind="gelu")],
        Spec("branch", mixer=Spec("lstm"), residual="sandwich"),
        [[Spec("gla")], [Spec("s4d"), Spec("hyena")]],
    ]
    return Backbone(d_model, blocks=blocks)


@pytest.mark.parametrize("residual", ["pre", "post", "sandwich", "none", "reversible"])
def test_a_stack_of_mixers_is_a_mixer(residual):
    blocks = [[Spec("attention", n_heads=2), Spec("ffn")], Spec("gla", n_heads=2)]
    report = check(lambda d: Backbone(d, blocks=blocks, residual=residual), dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"


def test_a_nested_hybrid_is_a_mixer():
    report = check(hybrid, dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"


def test_time_goes_to_the_continuous_parts_only():
    stack = hybrid(8)
    assert stack.continuous
    x = torch.randn(2, 5, 8)
    assert not torch.allclose(stack(x, None, None, 2.0)[0], stack(x)[0])
