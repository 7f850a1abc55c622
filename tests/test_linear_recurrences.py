"""What linear recurrences are known for: the parts that their papers single out, each by itself."""

import math

import pytest
import torch
from transformers import RwkvConfig, RwkvForCausalLM

import longwave as lw
from longwave import mixers
from longwave.errors import UserError
from longwave.models.block import Backbone
from longwave.ops.cases import Make
from longwave.ops.delta_rule import delta_rule
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.wkv import wkv
from longwave.spec import Spec
from longwave.tolerance import TOLERANCE, apart


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


def test_values_are_handed_on_within_each_chunk_of_chunked_training():
    torch.manual_seed(0)
    model = lw.create_model("rwkv7", d_model=8, n_layers=3, n_heads=2, vocab=40).double()
    tokens = torch.randint(40, (2, 30))
    found = []
    for how in ({}, {"chunk": 7}):
        loss = model.loss(tokens, tokens.roll(-1, 1), torch.tensor([30, 11]), **how)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for whole, pieces in zip(*found, strict=True):
        assert apart(pieces, whole) < TOLERANCE[torch.float64]


def test_handing_values_on_keeps_the_laws():
    blocks = [Spec("rwkv7", n_heads=2), [Spec("gla", n_heads=2), Spec("rwkv7", n_heads=2, first=False)]]
    report = lw.check(lambda d: Backbone(d, blocks=blocks), dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"


RENAMED = {
    "rwkv.blocks.0.pre_ln": "embed_norm", "rwkv.embeddings": "embed", "rwkv.ln_out": "backbone.norm",
    "rwkv.blocks": "backbone", "head": "unembed", ".ln1": ".0.norm", ".ln2": ".1.norm", ".time_decay": ".decay",
    ".time_first": ".bonus", "attention.key": "0.mixer.k", "attention.value": "0.mixer.v",
    "attention.receptance": "0.mixer.r", "attention.output": "0.mixer.out", "feed_forward.key": "1.mixer.k",
    "feed_forward.receptance": "1.mixer.r", "feed_forward.value": "1.mixer.out", "attention": "0.mixer",
    "feed_forward": "1.mixer",
}  # fmt: skip


def renamed(given):
    """transformers' names to ours; the rows of mu are their time_mix_key, _value and _receptance."""
    found = {}
    for name, value in given.items():
        for theirs, ours in RENAMED.items():
            name = name.replace(theirs, ours)
        base, mix, _ = name.partition("time_mix_")
        if mix:
            found[f"{base}mu"] = torch.cat([*([found[f"{base}mu"]] if f"{base}mu" in found else []), value[0]])
        else:
            found[name] = value
    return found


def test_rwkv4_is_the_published_model():
    torch.manual_seed(0)
    config = RwkvConfig(vocab_size=40, hidden_size=16, num_hidden_layers=3, rescale_every=0)  # else it halves weights
    theirs = RwkvForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours = lw.create_model("rwkv4", d_model=16, n_layers=3, vocab=40).eval()
    ours.load_state_dict(renamed(theirs.state_dict()))
    tokens, lengths = torch.randint(40, (3, 50)), torch.tensor([50, 0, 17])
    with torch.no_grad():
        wanted = theirs(tokens).logits
        whole, state = ours(tokens, ours.init_state(3), lengths)
        for b, n in enumerate(lengths.tolist()):
            assert n == 0 or apart(whole[b, :n], wanted[b, :n]) < TOLERANCE[torch.float32]
        after, _ = ours(tokens[:, :1], state)  # goes on behind the padding
        for b, n in enumerate(lengths.tolist()):
            longer = theirs(torch.cat([tokens[b : b + 1, :n], tokens[b : b + 1, :1]], 1)).logits[:, -1:]
            assert apart(after[b : b + 1], longer) < TOLERANCE[torch.float32]


def test_wkv_is_stable_however_large_the_keys():
    make = Make(torch.float64, grad=False)
    k, v = make.normal(2, 100, 3, scale=300.0), make.normal(2, 100, 3)
    decay, bonus = make.between(-2, 0, 3), make.normal(3)
    with lw.ops.use("reference"):
        right, _ = wkv(k, v, decay, bonus)
    start = torch.zeros(2, 3), torch.zeros(2, 3), torch.full((2, 3), -torch.inf)
    k, v, decay, bonus = (t.float() for t in (k, v, decay, bonus))
    with lw.ops.use("torch"):
        scanned, ends = wkv(k, v, decay, bonus, start)
    sums, steps = start, []
    for kt, vt in zip(k.split(1, 1), v.split(1, 1), strict=True):
        y, sums = wkv(kt, vt, decay, bonus, sums)
        steps.append(y)
    for got in (scanned, torch.cat(steps, 1)):
        assert apart(got, right.float()) <= 1e-5
    for a, b in zip(ends, sums, strict=True):
        assert apart(a, b) <= 1e-5


def test_the_delta_rule_replaces_what_linear_attention_adds_up():
    keys = torch.eye(4, dtype=torch.float64)[None, [0, 1, 0], None]  # the third is the first again
    values = torch.randn(1, 3, 1, 5, dtype=torch.float64)
    replaced, _ = delta_rule(keys, keys, values, keys, -keys)
    assert torch.allclose(replaced, values)
    added, _ = linear_recurrence(keys, keys, values)
    assert torch.allclose(added[:, 2], values[:, 0] + values[:, 2])


def test_retention_forgets_at_the_published_rates():
    retnet = mixers.create("retnet", 8, n_heads=4).double()
    with torch.no_grad():
        state = retnet.init_state(1)
        state = type(state)(torch.ones_like(state.S), state.n)
        _, after = retnet(torch.zeros(1, 3, 8, dtype=torch.float64), state)
    for head, rate in enumerate((31 / 32, 63 / 64, 127 / 128, 255 / 256)):
        assert torch.allclose(after.S[0, head], torch.full_like(after.S[0, head], rate**3))


def test_minlstm_settles_on_its_candidate():
    mixer = mixers.create("minlstm", 4, expand=1).double()
    with torch.no_grad():
        mixer.project.weight.zero_()  # gates and candidates are the biases
        _, state = mixer(torch.zeros(1, 400, 4, dtype=torch.float64), mixer.init_state(1))
    candidate = mixer.project.bias[8:]
    wanted = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
    assert torch.allclose(state.h[0], wanted)  # what is kept and what is let in sum to one


def test_eigenvalues_of_the_lru_start_on_a_ring_and_its_state_at_variance_one():
    torch.manual_seed(0)
    lru = mixers.create("lru", 64, d_state=1000, r_min=0.5, r_max=0.9, max_phase=math.pi / 2)
    radius, phase = (-lru.nu.exp()).exp(), lru.theta.exp()
    assert radius.min() >= 0.5 and radius.max() <= 0.9
    assert phase.min() >= 0 and phase.max() <= math.pi / 2
    area = torch.histc((radius**2 - 0.25) / (0.81 - 0.25), 5, 0, 1) / 1000
    assert (area - 0.2).abs().max() < 0.05  # even over the ring, not over the radius
    with torch.no_grad():
        _, state = lru(torch.randn(8, 200, 64), lru.init_state(8))
    assert state.h.square().sum(-1).mean().item() == pytest.approx(1.0, rel=0.1)


def test_hawk_starts_with_long_memories():
    hawk = mixers.create("hawk", 256)
    kept = torch.exp(-8 * torch.nn.functional.softplus(hawk.p))
    assert kept.min() >= 0.8999 and kept.max() <= 0.9991
    assert kept.mean().item() == pytest.approx(0.9495, abs=0.01)
