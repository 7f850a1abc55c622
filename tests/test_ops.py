"""Every form of every op on every case against the definition in float64: outputs, final state and gradients."""

import pytest
import torch
import torch.utils._pytree as pytree

import longwave.ops  # noqa: F401 - lists the ops
from longwave.errors import UserError
from longwave.ops.cases import Make
from longwave.ops.dispatch import ALL, op, use
from longwave.ops.ragged import zero_pads
from longwave.tolerance import TOLERANCE, apart

CASES = [
    (name, form.name, case)
    for name, each in ALL.items()
    for form in each.forms()
    for case, _ in each.cases(Make(grad=False))
]


def tensors(tree):
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def answers(run, arguments):
    """Outputs (zero at pads), then the gradients of all inputs under a random loss."""
    out = run(**arguments)
    lengths = arguments.get("lengths")
    parts = tensors(out if lengths is None else (zero_pads(out[0], lengths), *out[1:]))
    draw = torch.Generator().manual_seed(7)
    loss = torch.zeros((), dtype=torch.float64)
    for part in parts:
        real = torch.view_as_real(part) if part.is_complex() else part
        loss = loss + (real * torch.randn(real.shape, generator=draw, dtype=torch.float64).to(real)).sum()
    inputs = [t for t in tensors(arguments) if t.requires_grad]
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return parts, [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("name", "form", "case"), CASES)
def test_forms_agree_with_the_definition(name, form, case, dtype):
    each = ALL[name]
    run = next(f for f in each.forms() if f.name == form)
    arguments = dict(each.cases(Make(dtype)))[case]
    reason = run.when(**arguments)
    if reason:
        with pytest.raises(UserError, match="cannot run"), use(form):
            each(**arguments)
        return
    outputs, gradients = answers(run.run, arguments)
    right, right_gradients = answers(each.reference, dict(each.cases(Make(torch.float64)))[case])
    for got, wanted in zip([*outputs, *gradients], [*right, *right_gradients], strict=True):
        assert apart(got, wanted) <= TOLERANCE[dtype], (got, wanted)


@pytest.mark.parametrize("name", ALL)
def test_no_op_without_cases_or_a_fast_form(name):
    assert len(dict(ALL[name].cases(Make()))) >= 3
    assert len(ALL[name].forms()) >= 2


TWICE = [
    "linear_scan",
    "linear_recurrence",
    "fftconv",
    "short_conv",
    "conv1d",
    "lti",
    "selective_scan",
    "delta_rule",
    "wkv",
    "min_gru",
]


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name):
    each = ALL[name]
    case, arguments = next((c, a) for c, a in each.cases(Make(torch.float64)) if "7" in c or "3" in c)
    inputs = {k: v for k, v in arguments.items() if isinstance(v, torch.Tensor) and v.requires_grad}
    rest = {k: v for k, v in arguments.items() if k not in inputs}

    def run(*values):
        return tensors(each(**dict(zip(inputs, values, strict=True)), **rest))[0]

    assert torch.autograd.gradgradcheck(run, tuple(inputs.values()), fast_mode=True), case


def test_nan_in_is_nan_out():
    for name, each in ALL.items():
        for form in each.forms():
            for case, arguments in each.cases(Make(grad=False)):
                if form.when(**arguments) or "lengths" in arguments or "ignore" in case:
                    continue
                first = next(iter(arguments))
                arguments[first] = torch.full_like(arguments[first], torch.nan)
                if case == "nothing counts":
                    continue
                assert tensors(form.run(**arguments))[0].isnan().any(), (name, form.name, case)


def test_a_form_must_have_the_signature_of_its_definition():
    made = op(lambda x, y: x)
    ALL.pop("<lambda>")
    with pytest.raises(TypeError, match="other parameters"):
        made.form("torch")(lambda x: x)
    with pytest.raises(ValueError, match="did you mean 'triton'"):
        made.form("tritn")(lambda x, y: x)


def test_what_was_asked_for_and_cannot_run_is_an_error_with_its_reason():
    case = dict(ALL["lti"].cases(Make()))["ragged, a step a token"]
    with use("torch.convolution"), pytest.raises(UserError, match="step size changes over time"):
        ALL["lti"](**case)
    with pytest.raises(UserError, match="did you mean 'reference'"), use("referense"):
        pass


def test_auto_takes_the_preferred_form_that_can_and_should(monkeypatch):
    monkeypatch.setattr("longwave.ops.dispatch._asked", [])  # no LONGWAVE_BACKEND
    short, long = torch.ones(1, 2, 3, dtype=torch.float64), torch.ones(1, 100, 3, dtype=torch.float64)
    assert ALL["linear_scan"].choose(short, short).name == "reference"
    assert ALL["linear_scan"].choose(long, long).name != "reference"
    with use("torch"):
        assert ALL["linear_scan"].choose(short, short).name == "torch.blocks"
    with use("reference"):
        assert ALL["linear_scan"].choose(long, long).name == "reference"
