"""Low-rank adapters: beside any mixer, alone in training, exact in and out of the weights."""

import peft
import pytest
import torch
import torch.nn.functional as F

import longwave as lw
from longwave.errors import UserError
from longwave.tolerance import TOLERANCE, apart
from longwave.train.lora import load_adapters

MIXERS = ("attention", "mla", "mamba", "gla", "gated_deltanet", "rwkv7", "hyena", "lstm", "s4d")


def made(mixer):
    torch.manual_seed(0)
    return lw.create_model("lm", mixer=mixer, d_model=8, n_layers=1).eval()


@torch.no_grad()  # one path through the kernels, so that what is equal is equal bit for bit
def answer(model, tokens):
    return model(tokens)[0]


@pytest.mark.parametrize("mixer", MIXERS)
def test_an_adapted_mixer_keeps_its_law(mixer, tmp_path):
    model, tokens = made(mixer), torch.randint(256, (2, 9))
    before = answer(model, tokens)
    frozen = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapters = lw.lora(model, rank=2, alpha=4)
    assert torch.equal(answer(model, tokens), before)  # an adapter begins as nothing
    assert {n.rpartition(".")[2] for n, p in model.named_parameters() if p.requires_grad} == {"A", "B"}
    for layer in adapters.layers.values():
        torch.nn.init.normal_(layer.B)
    model.loss(tokens, tokens).backward()
    assert all(p.grad is not None and p.grad.any() for layer in adapters.layers.values() for p in layer.parameters())
    after = answer(model, tokens)
    assert not torch.allclose(after, before, atol=1e-3)
    with torch.no_grad():
        state, pieces = model.init_state(2), []
        for piece in tokens.split([4, 1, 4], 1):
            y, state = model(piece, state)
            pieces.append(y)
    assert apart(torch.cat(pieces, 1), after) < TOLERANCE[torch.float32]
    adapters.save(tmp_path / "mine.safetensors")
    other = made(mixer)
    load_adapters(other, tmp_path / "mine.safetensors")
    assert torch.equal(answer(other, tokens), after)
    adapters.merge()
    assert torch.equal(answer(model, tokens), after)
    assert dict(model.named_parameters()).keys() == frozen.keys()
    adapters.unmerge()
    assert torch.equal(answer(model, tokens), after)
    adapters.merge()
    for name, weight in adapters.merged.items():
        assert torch.equal(weight, frozen[f"{name}.weight"])


def test_an_adapted_layer_is_that_of_peft():
    layer = torch.nn.Sequential(torch.nn.Linear(6, 5))
    theirs = peft.get_peft_model(layer, peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0"]))
    ours = torch.nn.Sequential(torch.nn.Linear(6, 5))
    adapted = theirs.base_model.model[0]
    ours[0].load_state_dict(adapted.base_layer.state_dict())
    mine = lw.lora(ours, rank=2, alpha=6).layers["0"]
    torch.nn.init.normal_(adapted.lora_B["default"].weight)
    mine.load_state_dict({"A": adapted.lora_A["default"].weight, "B": adapted.lora_B["default"].weight})
    x = torch.randn(3, 6)
    torch.testing.assert_close(ours(x), theirs(x))
    F.mse_loss(ours(x), x[:, :5]).backward()
    F.mse_loss(theirs(x), x[:, :5]).backward()
    torch.testing.assert_close(mine.A.grad, adapted.lora_A["default"].weight.grad)
    torch.testing.assert_close(mine.B.grad, adapted.lora_B["default"].weight.grad)


def test_it_says_what_it_adapted(tmp_path):
    model = made("attention")
    adapters = lw.lora(model, rank=2, targets=("qkv",))
    assert adapters.share == 0.25 and "1 of 4 layers are adapted (25 %): qkv; 64 numbers train" in str(adapters)
    with pytest.raises(UserError, match="has adapters already"):
        lw.lora(model)
    with pytest.raises(UserError, match="no layer of this model is called 'qvk': did you mean 'qkv'"):
        lw.lora(made("attention"), targets=("qvk",))
    adapters.save(tmp_path / "mine.safetensors")
    with pytest.raises(UserError):
        load_adapters(made("lstm"), tmp_path / "mine.safetensors")
