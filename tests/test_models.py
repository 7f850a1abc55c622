"""Models: presets build, obey the law end to end, and survive the disk; hostile files do not."""

import json
import struct

import pytest
import safetensors.torch
import torch

import longwave as lw
from longwave import models
from longwave.errors import RunError, UserError
from longwave.files import read_header
from longwave.models.language_model import LanguageModel
from longwave.spec import Spec
from longwave.state import State
from longwave.tolerance import TOLERANCE, apart

TINY = {
    "lm": dict(d_model=8, n_layers=2),
    "gpt1": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40),
    "gpt2": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40),
    "gpt3": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40, window=3),
    "gpt_neo": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40, window=3),
    "llama": dict(d_model=8, n_layers=2, n_heads=4, n_kv_heads=2, d_hidden=16, vocab=40),
    "mistral": dict(d_model=8, n_layers=2, n_heads=4, n_kv_heads=2, d_hidden=16, vocab=40, window=3),
    "qwen2": dict(d_model=8, n_layers=2, n_heads=4, n_kv_heads=2, d_hidden=16, vocab=40),
    "deepseek": dict(
        d_model=8,
        n_layers=2,
        n_heads=2,
        d_latent=6,
        d_key=4,
        d_rope=2,
        d_value=4,
        d_hidden=16,
        d_expert=6,
        n_experts=4,
        top_k=2,
        vocab=40,
    ),
    "mamba2": dict(d_model=8, n_layers=2, d_state=4, n_heads=4, vocab=40),
    "mamba": dict(d_model=8, n_layers=2, vocab=40),
    "hybrid": dict(d_model=8, n_layers=4),
    "lstm": dict(d_model=8, n_layers=2),
    "rwkv4": dict(d_model=8, n_layers=2, vocab=40),
    "rwkv7": dict(d_model=8, n_layers=2, n_heads=2, vocab=40),
    "masked_lm": dict(d_model=8, n_layers=2),
    "classifier": dict(d_model=8, n_layers=2, vocab=40, n_classes=3),
    "vit": dict(d_model=8, n_layers=2, n_heads=2, size=8, patch=4, channels=1, n_classes=3),
    "resnet18": dict(depths=(1, 1), width=4, channels=1, n_classes=3),
    "resnet50": dict(depths=(1, 1), width=4, channels=1, n_classes=3),
    "pixelcnn": dict(size=4, colours=2, levels=5, d_model=8, n_layers=2, first=3, d_out=4),
    "pixelrnn": dict(size=4, colours=2, levels=5, d_model=8, n_layers=1, first=3, d_out=4),
    "graph_mamba": dict(d_model=8, n_layers=1, d_input=3, n_classes=3),
    "show_attend_tell": dict(d_model=8, vocab=40, depths=(1, 1), width=4, channels=1),
    "vit_gpt2": dict(d_model=8, vocab=40, n_layers=1, n_heads=2, size=8, patch=4, channels=1, context=64),
    "whisper": dict(d_model=8, vocab=40, n_layers=1, n_heads=2, mels=4, longest=8, context=64),
    "wavegan": dict(n_classes=3, n_samples=64, width=4),
    "bert": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40),
    "bert_large": dict(d_model=8, n_layers=2, n_heads=2, context=64, vocab=40),
    "modernbert": dict(d_model=8, n_layers=4, n_heads=2, d_hidden=12, window=4, vocab=40),
    "fnet": dict(d_model=8, n_layers=2, d_hidden=16, context=64, vocab=40, head="masked"),
    "nystromformer": dict(d_model=8, n_layers=2, n_heads=2, d_hidden=16, landmarks=3, taps=3, context=64, vocab=40),
    "bigbird": dict(d_model=8, n_layers=2, n_heads=2, d_hidden=16, block=2, n_random=1, vocab=40, head="masked"),
    "longformer": dict(d_model=8, n_layers=2, n_heads=2, d_hidden=16, window=4, context=64, vocab=40),
    "elmo": dict(d_model=6, d_cell=10, n_layers=2, filters=64, vocab=40),
    "elmo_classifier": dict(d_elmo=6, d_cell=10, filters=64, d_model=8, n_layers=1, n_classes=3),
    "reformer": dict(
        d_model=8,
        n_layers=2,
        n_heads=2,
        d_key=4,
        d_hidden=16,
        chunk=3,
        n_buckets=(2, 4),
        context=64,
        columns=8,
        d_row=2,
        vocab=40,
        dropout=0.0,
    ),
    "hierarchy": dict(d_model=8, n_lower=1, n_upper=1, vocab=40, piece=4),
    "transformer": dict(d_model=8, n_layers=2, n_heads=2, d_hidden=16, vocab=40),
    "rnn_seq2seq": dict(d_model=8, n_layers=2, vocab=40),
    "rnn_attention": dict(d_model=8, vocab=40),
    "gnmt": dict(d_model=8, n_layers=3, vocab=40, source_vocab=40),
    "lstm_moe": dict(d_model=8, d_cell=12, n_experts=4, top_k=2, d_hidden=16, vocab=40, source_vocab=40),
    "deep_att": dict(d_model=8, encoder_levels=3, decoder_levels=2, vocab=40, source_vocab=40),
    "bytenet": dict(d_model=8, n_sets=2, levels=2, vocab=40),
    "convs2s": dict(d_model=8, n_layers=2, longest=64, vocab=40, dropout=0.0),
    "transformer_big": dict(d_model=8, n_layers=2, n_heads=4, d_hidden=16, vocab=40),
}
TRANSLATION = (
    "transformer",
    "transformer_big",
    "rnn_seq2seq",
    "rnn_attention",
    "gnmt",
    "lstm_moe",
    "deep_att",
    "bytenet",
    "convs2s",
)
IMAGES = ("vit", "resnet18", "resnet50")
CAPTIONS = ("show_attend_tell", "vit_gpt2")
SPEECH = ("whisper",)
PIXELS = ("pixelcnn", "pixelrnn")
INPUTS = {"wavegan": lambda: (torch.randn(2, 6, 1),)}  # of those that do not read tokens
INPUTS |= {name: lambda: (torch.randn(2, 1, 8, 8),) for name in (*IMAGES, *CAPTIONS)}
INPUTS |= {name: lambda: (torch.randn(2, 16, 4),) for name in SPEECH}
INPUTS |= {name: lambda: (torch.randint(5, (2, 2, 4, 4)),) for name in PIXELS}
INPUTS |= {name: lambda: (torch.randint(1, 260, (2, 6, 5)),) for name in ("elmo", "elmo_classifier")}
INPUTS |= {"graph_mamba": lambda: (torch.randn(2, 4, 3), torch.ones(2, 4, 4))}
LANGUAGE = [name for name, options in TINY.items() if models.preset(name, **options).name == "language_model"]


def tiny(name, **options):
    torch.manual_seed(0)
    return lw.create_model(name, **{**TINY[name], **options}).eval()


def test_every_preset_has_a_tiny_twin():
    assert set(TINY) == set(lw.list_models())


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_law_from_tokens_to_logits(name):
    model = tiny(name).double()
    tokens = torch.randint(40, (3, 12))
    lengths = torch.tensor([12, 0, 7])
    whole, none = model(tokens)
    assert none is None
    state, pieces = model.init_state(3), []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        y, state = model(tokens[:, start:stop], state, (lengths - start).clamp(0, stop - start))
        pieces.append(y)
    parts = torch.cat(pieces, 1)
    for b, n in enumerate(lengths.tolist()):
        assert apart(parts[b, :n], whole[b, :n]) < TOLERANCE[torch.float64]
    after, _ = model(tokens[:, :2], state)
    alone, _ = model(tokens[2:, :2], model(tokens[2:, :7], model.init_state(1))[1])
    assert apart(after[2:], alone) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("name", LANGUAGE)
def test_loss_is_that_of_the_logits(name):
    model = tiny(name).double()
    tokens = torch.randint(40, (2, 9))
    lengths = torch.tensor([8, 3])
    logits, _ = model(tokens[:, :-1], None, lengths)
    want = [
        torch.nn.functional.cross_entropy(logits[b, :n], tokens[b, 1 : n + 1], reduction="sum")
        for b, n in ((0, 8), (1, 3))
    ]
    got = model.loss(tokens[:, :-1], tokens[:, 1:], lengths)
    torch.testing.assert_close(got, torch.stack(want).sum() / 11)
    scored = model.log_prob(tokens, torch.tensor([9, 4]))
    torch.testing.assert_close(scored, -torch.stack(want))


@pytest.mark.parametrize("name", TINY)
def test_save_and_load(name, tmp_path):
    model = tiny(name)
    tokens = torch.randint(40, (2, 6))
    seen = INPUTS.get(name, lambda: (tokens,))()

    def answer(model):
        source = name in (*TRANSLATION, *CAPTIONS, *SPEECH)
        return model(*((tokens, model.init_state(*seen)) if source else seen))[0]

    lw.save(model, tmp_path / "folder")
    loaded = lw.load(tmp_path / "folder").eval()
    assert loaded.spec == model.spec
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True)
    )
    same = (
        torch.allclose if name in (*CAPTIONS, *SPEECH) else torch.equal
    )  # convolutions depend on where weights lie in memory
    assert same(answer(loaded), answer(model))
    answered = answer(model).argmax(-1)
    wanted = answered[:, :, 0] if name == "elmo" else answered  # it guesses to both sides
    loaded.loss(*seen, *([] if name in PIXELS else [wanted])).backward()
    lw.save(model, tmp_path / "folder")  # once more over itself
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("name", TINY)
def test_specs_go_through_json(name):
    spec = models.preset(name, **TINY[name])
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def published(name, **options):
    with torch.device("meta"):
        return lw.create_model(name, **options).n_parameters


def test_published_sizes():
    assert published("gpt2") == 124_439_808
    assert published("gpt3") == pytest.approx(125e6, rel=0.005)
    assert published("gpt3", d_model=12288, n_layers=96, n_heads=96) == pytest.approx(175e9, rel=0.005)
    assert published("gpt1") == 116_534_784
    assert published("gpt_neo") == 125_198_592
    assert published("llama") == 1_235_814_400
    assert published("mistral") == 7_241_732_096
    assert published("qwen2") == 494_032_768
    assert published("deepseek") == pytest.approx(15.7e9, rel=0.005)
    v3 = dict(d_model=7168, n_layers=61, n_dense=3, n_heads=128, d_query=1536, d_hidden=18432, d_expert=2048,
              n_experts=256, top_k=8, n_shared=1, n_groups=8, top_groups=4, gate="sigmoid",
              scale=2.5, vocab=129280)  # fmt: skip
    assert published("deepseek", **v3) == pytest.approx(671e9, rel=0.005)
    assert published("mamba2") == pytest.approx(130e6, rel=0.01)
    assert published("mamba") == 129_135_360
    assert published("rwkv4") == 169_342_464
    assert published("rwkv7") == 191_034_624
    assert published("vit") == 86_567_656
    assert published("resnet18") == 11_689_512
    assert published("resnet50") == 25_557_032
    assert published("bert", head="pooled") == 109_482_240
    assert published("bert", head="pretrain") == 110_106_428
    assert published("bert_large", head="pooled") == 335_141_888
    assert published("elmo", guesses=False) == pytest.approx(93.6e6, rel=0.001)
    assert published("modernbert") == 149_655_232  # with a bias a token
    assert published("modernbert", d_model=1024, n_layers=28, n_heads=16, d_hidden=2624) == 395_881_664
    assert published("fnet") == 83_486_722
    assert published("nystromformer") == 109_120_704  # without two rows that nobody reads, as the next but one
    assert published("bigbird") == 128_112_824
    assert published("longformer") == 148_709_721
    assert published("whisper") == 37_184_256 + 12 * 384  # biases of keys, which change nothing and theirs has not
    assert published("whisper", d_model=512, n_layers=6, n_heads=8) == 71_825_408 + 18 * 512
    assert published("reformer") == 2_747_904
    assert published("transformer") == 63_045_632  # with 37,000 tokens; the paper says 65 million
    assert published("gnmt") == pytest.approx(278e6, rel=0.01)  # as Shazeer et al. 2017 count it, table 2
    assert published("lstm_moe") == pytest.approx(8.7e9, rel=0.005)
    assert published("transformer_big") == pytest.approx(213e6, rel=0.01)


def test_residual_weights_start_smaller_with_depth():
    model = lw.create_model("gpt2", d_model=64, n_layers=8, n_heads=4, vocab=64)
    block = model.backbone.parts()[3].parts()
    for branch in block:
        assert branch.mixer.out.weight.std().item() == pytest.approx(0.02 / 17**0.5, rel=0.05)
    assert block[0].mixer.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_wrapping_keeps_what_a_mixer_means_by_its_initial_values():
    torch.manual_seed(3)
    alone = lw.create_mixer("mamba", d_model=8)
    model = lw.create_model("lm", mixer="mamba", d_model=8, n_layers=1, ffn=None)
    inside = model.backbone.parts()[0].parts()[0].mixer
    assert torch.equal(inside.log_A, alone.log_A)
    assert inside.dt.bias.std() > 0.5


def test_a_classifier_answers_so_far():
    for pool in ("mean", "last", "first"):
        model = tiny("classifier", pool=pool, mixer="gru").double()
        tokens = torch.randint(40, (3, 10))
        lengths = torch.tensor([10, 4, 1])
        whole, _ = model(tokens, None, lengths)
        state = model.init_state(3)
        for start, stop in ((0, 3), (3, 10)):
            answer, state = model(tokens[:, start:stop], state, (lengths - start).clamp(0, stop - start))
        assert apart(answer, whole) < TOLERANCE[torch.float64]
        for b, n in enumerate(lengths.tolist()):
            assert apart(whole[b : b + 1], model(tokens[b : b + 1, :n])[0]) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("head", ["classify", "tag", "regress", "predict"])
def test_heads_learn_from_ragged_batches(head):
    model = lw.create_model("classifier", n_classes=3, d_input=2, d_model=8, n_layers=1, mixer="gru", head=head).train()
    x, lengths = torch.randn(4, 6, 2), torch.tensor([6, 3, 1, 5])
    shapes = {"classify": (4,), "tag": (4, 6), "regress": (4, 3), "predict": (4, 6, 3)}
    target = torch.randn(shapes[head]) if head in ("regress", "predict") else torch.randint(3, shapes[head])
    before = model.loss(x, target, lengths)
    bad = torch.where(torch.arange(6)[None, :, None] < lengths[:, None, None], x, torch.nan)
    torch.testing.assert_close(model.loss(bad, target, lengths), before)
    optimizer = torch.optim.AdamW(lw.param_groups(model, lr=1e-2, decay=0.0))
    for _ in range(30):
        optimizer.zero_grad()
        loss = model.loss(x, target, lengths)
        loss.backward()
        optimizer.step()
    assert loss < 0.9 * before


def test_a_continuous_model_takes_dt():
    model = lw.create_model("classifier", n_classes=3, d_input=1, d_model=8, n_layers=1, mixer="s4d")
    x = torch.randn(2, 6, 1)
    assert not torch.allclose(model(x, None, None, 0.5)[0], model(x)[0])
    with pytest.raises(UserError, match="no notion of time"):
        lw.create_model("classifier", n_classes=3, d_input=1, d_model=8, n_layers=1, mixer="gru")(x, None, None, 0.5)


def test_input_is_tokens_or_frames():
    with pytest.raises(UserError, match="give vocab or d_input"):
        lw.create_model("classifier", n_classes=2)


def test_encoder_memory_reaches_the_decoder():
    spec = Spec("language_model", d_model=8, blocks=[[Spec("attention"), Spec("cross"), Spec("ffn")]])
    model = lw.create_model(spec).eval()
    memory, tokens = torch.randn(2, 5, 8, requires_grad=True), torch.randint(256, (2, 4))
    state = model.init_state(2, memory=memory, lengths=torch.tensor([5, 2]))
    logits, _ = model(tokens, state)
    (seen,) = torch.autograd.grad(logits.sum(), memory)
    assert seen[0].abs().sum(-1).all()
    assert not seen[1, 2:].any()


def tamper(path, change):
    """Rewrite a safetensors file's header."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    header = change(header) or header
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def about(key, value):
    return lambda header: header["__metadata__"].__setitem__(key, value)


def spec_with(**options):
    return json.dumps(models.preset("lm", **TINY["lm"]).but(**options).to_json())


HOSTILE = {
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-100]), "damaged or not a safetensors"),
    "empty": (lambda p: p.write_bytes(b""), "damaged or not a safetensors"),
    "a pickle": (lambda p: torch.save({"w": torch.ones(1)}, p), "damaged or not a safetensors"),
    "absurd header size": (lambda p: p.write_bytes(b"\xff" * 16), "damaged or not a safetensors"),
    "someone else's": (lambda p: safetensors.torch.save_file({"w": torch.ones(1)}, p), "not written by longwave"),
    "another version": (lambda p: tamper(p, about("longwave", "99")), "format '99'"),
    "a state": (lambda p: lw.create_mixer("gla", d_model=8).init_state(1).save(p), "holds a state, not a model"),
    "no spec": (lambda p: tamper(p, lambda h: h["__metadata__"].pop("spec") and None), "spec is not JSON"),
    "no JSON": (lambda p: tamper(p, about("spec", "{")), "spec is not JSON"),
    "deep JSON": (lambda p: tamper(p, about("spec", "[" * 100000)), "spec is not JSON"),
    "another kind": (
        lambda p: tamper(p, about("spec", '{"name": "os.system", "options": {}}')),
        "unknown kind of model",
    ),
    "unknown option": (lambda p: tamper(p, about("spec", spec_with(hooks="x"))), "no option 'hooks'"),
    "unknown mixer": (lambda p: tamper(p, about("spec", spec_with(blocks=[Spec("../../evil")]))), "unknown mixer"),
    "absurd width": (lambda p: tamper(p, about("spec", spec_with(vocab=10**12))), "has shape"),
    "another depth": (lambda p: tamper(p, about("spec", spec_with(blocks=[]))), "does not know"),
    "a tensor renamed": (
        lambda p: tamper(p, lambda h: {("embed.wait" if k == "embed.weight" else k): v for k, v in h.items()}),
        "lacks the tensor 'embed.weight' that its spec calls for: did you mean 'embed.wait'",
    ),
    "overlapping offsets": (
        lambda p: tamper(p, lambda h: h["backbone.norm.weight"].__setitem__("data_offsets", [0, 32])),
        "damaged or not a safetensors",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_told_apart(kind, tmp_path):
    lw.save(tiny("lm"), tmp_path)
    file = tmp_path / "model.safetensors"
    spoil, words = HOSTILE[kind]
    spoil(file)
    with pytest.raises(UserError, match=words):
        lw.load(tmp_path)


def test_where_there_is_no_model(tmp_path):
    with pytest.raises(UserError, match="no model in"):
        lw.load(tmp_path)
    with pytest.raises(UserError, match="no such file or folder"):
        lw.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        lw.save(tiny("lm"), tmp_path / "file")
    with pytest.raises(UserError, match="cannot make the folder"):
        lw.save(tiny("lm"), tmp_path / "file" / "below")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    lw.save(tiny("lm"), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(RunError, match="no space left"):
        lw.save(tiny("mamba"), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_files_are_readable_by_others(tmp_path):
    lw.save(tiny("lm"), tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~0o022
    assert read_header(tmp_path / "model.safetensors", "model")["longwave"] == "1"


def test_states_of_models_can_be_kept(tmp_path):
    model = tiny("hybrid")
    assert isinstance(model, LanguageModel)
    tokens = torch.randint(256, (1, 7))
    with torch.no_grad():
        _, state = model(tokens, model.init_state(1))
        state.clone().save(tmp_path / "prompt")
        loaded = State.load(tmp_path / "prompt", like=model.init_state(1))
        assert torch.equal(model(tokens, loaded)[0], model(tokens, state)[0])
