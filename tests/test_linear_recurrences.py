"""What linear recurrences are known for: the parts that their papers single out, each by itself."""

import pytest
import torch

import longwave as lw
from longwave.errors import UserError
from longwave.models.block import Backbone
from longwave.spec import Spec


def test_the_first_value_reaches_later_layers():
    torch.manual_seed(0)
    stack = Backbone(8, blocks=[[Spec("rwkv7"), Spec("ffn")], [[Spec("rwkv7", first=False)], Spec("ffn")]]).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    stack(x)[0].square().sum().backward()
    later = stack.parts()[1].parts()[0].mixer
    assert later.mix_value.up.bias.grad.abs().min() > 0
    assert stack.gives and not stack.takes
    with torch.no_grad():
        later.mix_value.up.bias.fill_(-40.0)  # nothing of the first value
        apart, _ = stack(x)
        later.takes = ()
        assert torch.allclose(stack(x)[0], apart)


def test_a_value_that_nobody_gives_is_missed_when_the_model_is_built():
    for blocks in ([Spec("rwkv7", first=False)], [Spec("rwkv7", first=False), Spec("rwkv7")]):
        with pytest.raises(UserError, match="takes 'rwkv7 value', which no layer before it gives"):
            Backbone(8, blocks=blocks)


def test_handing_values_on_keeps_the_laws():
    blocks = [Spec("rwkv7", n_heads=2), [Spec("gla", n_heads=2), Spec("rwkv7", n_heads=2, first=False)]]
    report = lw.check(lambda d: Backbone(d, blocks=blocks), dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"
