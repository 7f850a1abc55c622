"""Published weights: the same logits as transformers on the way in and again on the way out; bad files told apart."""

import contextlib
import json
import os
import pickle
import struct

import pytest
import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import longwave as lw
from longwave.cli import main
from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights.config import IGNORED, Config
from longwave.models.weights.convert import all_families
from longwave.models.weights.names import piece

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

CLOSE = 1e-5
LAYERS = dict(vocab_size=40, hidden_size=8, num_hidden_layers=2)
GROUPED = dict(**LAYERS, num_attention_heads=4, num_key_value_heads=2, intermediate_size=12)
GPT = dict(vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=32)
LATENT = dict(**LAYERS, num_attention_heads=2, num_key_value_heads=2, intermediate_size=12, moe_intermediate_size=8,
              kv_lora_rank=6, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=4, n_routed_experts=4,
              num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1)  # fmt: skip
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)  # fmt: skip
TWINS = {  # name: model type, and what differs from its defaults
    "gpt2": ("gpt2", GPT),
    "openai-gpt": ("openai-gpt", GPT),
    "gpt_neo": ("gpt_neo", dict(vocab_size=40, hidden_size=8, num_layers=2, num_heads=2, window_size=3,
                                attention_types=[[["global", "local"], 1]], max_position_embeddings=32)),
    "llama": ("llama", GROUPED),
    "llama tied": ("llama", dict(**GROUPED, tie_word_embeddings=True, rms_norm_eps=1e-5)),
    "llama with biases": ("llama", dict(**GROUPED, attention_bias=True, mlp_bias=True, head_dim=6)),
    "llama linear": ("llama", dict(**GROUPED, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e4))),
    "llama 3": ("llama", dict(**GROUPED, head_dim=8, rope_parameters=LLAMA3)),
    "llama yarn": ("llama", dict(**GROUPED, head_dim=8, rope_parameters=YARN)),
    "mistral": ("mistral", dict(**GROUPED, sliding_window=4)),
    "qwen2": ("qwen2", dict(**GROUPED, tie_word_embeddings=True)),
    "mamba": ("mamba", LAYERS),
    "mamba2": ("mamba2", dict(**LAYERS, state_size=4, num_heads=4, head_dim=4, n_groups=2, chunk_size=8)),
    "rwkv": ("rwkv", dict(**LAYERS, rescale_every=0)),
    "deepseek_v2": ("deepseek_v2", dict(**LATENT, q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1)),
    "deepseek_v3": ("deepseek_v3", dict(**LATENT, q_lora_rank=6, n_group=2, topk_group=1)),
    "deepseek_v3 yarn": ("deepseek_v3", dict(**LATENT, q_lora_rank=None, n_group=2, topk_group=1, rope_parameters=dict(
        **YARN, mscale=1.0, mscale_all_dim=1.0))),
}  # fmt: skip
TWINS["deepseek_v2 yarn"] = ("deepseek_v2", {**TWINS["deepseek_v2"][1], "rope_parameters": dict(
    **YARN, mscale=0.7, mscale_all_dim=0.7)})  # fmt: skip
LENGTHS = (12, 5, 1)


def twin(name, folder):
    """A random model of transformers, saved; in eval mode, biases and gains random, too."""
    kind, options = TWINS[name]
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).eval()
    with torch.no_grad():
        for key, p in theirs.named_parameters():
            if not key.endswith(("A_log", "dt_bias", "time_decay")):
                p.add_(torch.randn_like(p) * 0.2)
    theirs.save_pretrained(folder)
    return theirs


def logits(theirs, tokens):
    return theirs(tokens, use_cache=False).logits


@pytest.mark.parametrize("name", TWINS)
def test_in_and_out(name, tmp_path):
    theirs = twin(name, tmp_path / "theirs")
    report = weights.bring(tmp_path / "theirs", tmp_path / "ours")
    assert report.difference <= CLOSE
    assert "0 missing, 0 unexpected" in str(report)
    ours = lw.load(tmp_path / "ours").eval()
    tokens, lengths = torch.randint(40, (3, max(LENGTHS))), torch.tensor(LENGTHS)

    wanted = [logits(theirs, tokens[b : b + 1, :n])[0] for b, n in enumerate(LENGTHS)]
    mine, _ = ours(tokens, None, lengths)
    for b, n in enumerate(LENGTHS):
        torch.testing.assert_close(mine[b, :n], wanted[b], rtol=0, atol=CLOSE)

    with torch.no_grad():  # cached: a prompt, then token by token
        y, state = ours(tokens[:1, :4], ours.init_state(1))
        pieces = [y]
        for t in range(4, max(LENGTHS)):
            y, state = ours(tokens[:1, t : t + 1], state)
            pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, 1)[0], wanted[0], rtol=0, atol=CLOSE)

    lw.save(ours, tmp_path / "trained")
    assert weights.export(tmp_path / "trained", tmp_path / "back").difference <= CLOSE
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    if name == "rwkv":
        assert again.config.rescale_every == 0
    torch.testing.assert_close(logits(again, tokens), logits(theirs, tokens), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", TWINS)
def test_gradients_of_one_step(name, tmp_path):
    """Of every tensor, under their names: what our gradients are written as is what theirs are."""
    theirs = twin(name, tmp_path)
    ours = lw.load(tmp_path)
    family = next(f for f in all_families() if TWINS[name][0] in f.TYPES)
    tokens = torch.randint(40, (2, 9))
    ours.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    lost = torch.nn.functional.cross_entropy(logits(theirs, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    lost.backward()
    right = {key: p.grad for key, p in theirs.named_parameters() if p.grad is not None}
    parts, compared = family.names(ours), 0
    for key, p in ours.named_parameters():
        if p.grad is None:
            continue
        for their_key, mine in piece(parts[key]).write(p.grad):
            if their_key in right:  # experts are fused in memory
                torch.testing.assert_close(mine, right[their_key], rtol=1e-3, atol=CLOSE)
                compared += 1
    assert compared >= len(right) - 2 * name.startswith("deepseek")


@pytest.mark.parametrize("name", ["gpt2", "llama", "mamba", "rwkv"])
def test_greedy_text_is_that_of_transformers(name, tmp_path):
    theirs = twin(name, tmp_path)
    prompts = [torch.randint(40, (n,)).tolist() for n in (5, 1, 8)]
    mine = lw.generate(lw.load(tmp_path), prompts, max_tokens=20, temperature=0.0)  # ragged; theirs one by one
    for prompt, said in zip(prompts, mine, strict=True):
        wanted = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None,
                                 pad_token_id=0)  # fmt: skip
        assert said == wanted[0, len(prompt) :].tolist()


THEIRS = dict(d_model=8, n_layer=2, vocab_size=37, ssm_cfg={}, rms_norm=True, residual_in_fp32=True,
              fused_add_norm=True, pad_vocab_size_multiple=8)  # fmt: skip
AUTHORS = {  # config.json as the authors write it; RWKV's have none
    "mamba": ("mamba", LAYERS, THEIRS),
    "mamba2": ("mamba2", dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=128, num_heads=1,
                              head_dim=64, n_groups=1, tie_word_embeddings=True, chunk_size=8),
               dict(**{**THEIRS, "d_model": 32, "ssm_cfg": {"layer": "Mamba2"}}, d_intermediate=0, attn_layer_idx=[],
                    attn_cfg={}, tie_embeddings=True)),
    "rwkv": ("rwkv", dict(**LAYERS, rescale_every=0), None),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTHORS)
def test_authors_own_checkpoints(name, tmp_path):
    kind, options, sizes = AUTHORS[name]
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).bfloat16().float().eval()
    original = {}
    for key, t in theirs.state_dict().items():
        for new, old in (("backbone.embeddings", "backbone.embedding"), ("rwkv.embeddings", "emb"),
                         ("rwkv.blocks.0.pre_ln", "blocks.0.ln0"), ("rwkv.", ""), ("attention.", "att."),
                         ("feed_forward.", "ffn."), ("mix_key", "mix_k"), ("mix_value", "mix_v"),
                         ("mix_receptance", "mix_r")):  # fmt: skip
            key = key.replace(new, old)
        original[key] = t.bfloat16()
    if sizes is None:
        path = tmp_path / "RWKV-4.pth"
        torch.save(original, path)
    else:
        path = tmp_path / "original"
        path.mkdir()
        torch.save(original, path / "pytorch_model.bin")
        (path / "config.json").write_text(json.dumps(sizes))
    assert weights.bring(path, tmp_path / "ours").difference <= CLOSE
    tokens = torch.randint(40, (1, 9))
    torch.testing.assert_close(lw.load(path)(tokens)[0], logits(theirs, tokens), rtol=0, atol=CLOSE)


def test_shards_pickles_and_old_names(tmp_path):
    theirs = twin("gpt2", tmp_path / "whole")
    tokens = torch.randint(40, (1, 9))
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="3KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    (tmp_path / "old").mkdir()
    old = {key.removeprefix("transformer."): t for key, t in theirs.state_dict().items()}
    old["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
    torch.save(old, tmp_path / "old" / "pytorch_model.bin")
    (tmp_path / "old" / "config.json").write_text((tmp_path / "whole" / "config.json").read_text())
    for kind in ("shards", "old"):
        torch.testing.assert_close(lw.load(tmp_path / kind)(tokens)[0], logits(theirs, tokens), rtol=0, atol=CLOSE)
    torch.save({**old, "lm_head.weight": torch.ones(40, 8)}, tmp_path / "old" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"'lm_head.weight' differs from 'transformer.wte.weight'"):
        lw.load(tmp_path / "old")


OLD = dict(bos_token_id=0, eos_token_id=0, torch_dtype="bfloat16", transformers_version="4.40.0", use_cache=True)
HEADS = dict(num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536)
PUBLISHED = {  # as their config.json says it on the hub: the number of parameters
    "SmolLM2-135M": (134_515_008, dict(
        model_type="llama", vocab_size=49152, hidden_size=576, num_hidden_layers=30, **HEADS, hidden_act="silu",
        is_llama_config=True, rope_interleaved=False, rope_scaling=None, rope_theta=100000, rms_norm_eps=1e-5,
        pretraining_tp=1, tie_word_embeddings=True, max_position_embeddings=8192, attention_bias=False)),
    "Llama-3.2-1B": (1_235_814_400, dict(
        model_type="llama", vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, intermediate_size=8192, head_dim=64, hidden_act="silu", mlp_bias=False,
        rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True, rope_scaling=dict(
            factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
            rope_type="llama3"))),
    "Qwen2-0.5B": (494_032_768, dict(
        model_type="qwen2", vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, intermediate_size=4864, hidden_act="silu", max_window_layers=24, rms_norm_eps=1e-6,
        rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False, tie_word_embeddings=True)),
    "Mistral-7B-v0.1": (7_241_732_096, dict(
        model_type="mistral", vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, intermediate_size=14336, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
        sliding_window=4096, tie_word_embeddings=False)),
    "mamba-130m-hf": (129_135_360, dict(
        model_type="mamba", vocab_size=50280, hidden_size=768, d_model=768, d_inner=1536, n_layer=24, expand=2,
        num_hidden_layers=24, state_size=16, intermediate_size=1536, conv_kernel=4, time_step_rank=48, ssm_cfg={},
        rms_norm=True, fused_add_norm=True, residual_in_fp32=True, layer_norm_epsilon=1e-5, hidden_act="silu",
        pad_vocab_size_multiple=8, use_bias=False, use_conv_bias=True, time_step_scale=1.0)),
    "rwkv-4-169m-pile": (169_342_464, dict(
        model_type="rwkv", vocab_size=50277, hidden_size=768, attention_hidden_size=768, num_hidden_layers=12,
        intermediate_size=3072, context_length=1024, rescale_every=6, layer_norm_epsilon=1e-5,
        tie_word_embeddings=False)),
    "DeepSeek-V2-Lite": (15_706_484_224, dict(
        model_type="deepseek_v2", vocab_size=102400, hidden_size=2048, num_hidden_layers=27, num_attention_heads=16,
        num_key_value_heads=16, intermediate_size=10944, moe_intermediate_size=1408, kv_lora_rank=512,
        q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_group=1, topk_group=1,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1,
        norm_topk_prob=False, routed_scaling_factor=1.0, scoring_func="softmax", topk_method="greedy",
        aux_loss_alpha=0.001, seq_aux=True, attention_bias=False, hidden_act="silu", rms_norm_eps=1e-6,
        rope_theta=10000, tie_word_embeddings=False, rope_scaling=dict(
            beta_fast=32, beta_slow=1, factor=40, mscale=0.707, mscale_all_dim=0.707,
            original_max_position_embeddings=4096, type="yarn"))),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_on_the_hub(name):
    wanted, values = PUBLISHED[name]
    config = Config({**OLD, **values}, name)
    family = next(f for f in all_families() if values["model_type"] in f.TYPES)
    spec = family.spec(config)
    config.done()
    with torch.device("meta"):
        model = lw.create_model(spec)
    assert model.n_parameters == wanted
    again = Config(family.config(model), name)  # and back, by way of our model
    assert family.spec(again).options["blocks"] == spec.options["blocks"]


@pytest.mark.parametrize("kind", ["llama 3", "llama yarn", "llama linear"])
def test_the_old_way_to_write_rotations(kind, tmp_path):
    theirs = twin(kind, tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    rope = values.pop("rope_parameters")
    values["rope_theta"], values["rope_scaling"] = rope.pop("rope_theta"), rope
    rope["type"] = rope.pop("rope_type")
    file.write_text(json.dumps(values))
    tokens = torch.randint(40, (1, 40))
    torch.testing.assert_close(lw.load(tmp_path)(tokens)[0], logits(theirs, tokens), rtol=0, atol=CLOSE)


def any_config_is_read_or_told_apart(folder):
    file = folder / "config.json"
    values = json.loads(file.read_text())
    for key in values.keys() - IGNORED:
        inner = values[key] if isinstance(values[key], dict) else {}
        for bad in (-1, 1e300, "text", [], {}, True, None, *({**inner, k: v} for k in inner for v in ("text", -1))):
            file.write_text(json.dumps({**values, key: bad}))
            with contextlib.suppress(UserError):
                lw.load(folder)


@pytest.mark.parametrize("name", [*(name for name, (kind, _) in TWINS.items() if name == kind), "llama yarn"])
def test_any_config_is_read_or_told_apart(name, tmp_path):
    twin(name, tmp_path)
    any_config_is_read_or_told_apart(tmp_path)


def test_what_no_family_has_is_not_published(tmp_path):
    lw.save(lw.create_model("lm", mixer="gla", d_model=8, n_layers=1), tmp_path / "run")
    with pytest.raises(UserError, match="no family that transformers knows"):
        weights.export(tmp_path / "run", tmp_path / "out", "gguf")
    lw.save(lw.create_model("lm", d_model=8, n_layers=1), tmp_path / "attention")
    assert weights.export(tmp_path / "attention", tmp_path / "llama").family == "llama"
    with pytest.raises(UserError, match="new or empty"):
        weights.export(tmp_path / "attention", tmp_path / "llama")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attention", "llama", "run"]


class Evil:
    def __reduce__(self):
        return os.system, ("touch RAN",)


def tensors(change):
    def spoil(folder):
        found = safetensors.torch.load_file(folder / "model.safetensors")
        safetensors.torch.save_file(change(found) or found, folder / "model.safetensors")

    return spoil


def config(**values):
    def spoil(folder):
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return spoil


def header(change):
    def spoil(folder):
        raw = (folder / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", raw[:8])
        found = json.loads(raw[8 : 8 + size])
        change(found)
        text = json.dumps(found).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])

    return spoil


def pickled(thing):
    def spoil(folder):
        (folder / "model.safetensors").unlink()
        if isinstance(thing, bytes):
            (folder / "pytorch_model.bin").write_bytes(thing)
        else:
            torch.save(thing, folder / "pytorch_model.bin")

    return spoil


def indexed(places):
    def spoil(folder):
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return spoil


NORM = "model.norm.weight"
BAD = {
    "truncated": (lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-50]),
                  "damaged or not a safetensors"),
    "empty": (lambda d: (d / "model.safetensors").write_bytes(b""), "damaged or not a safetensors"),
    "absurd header": (lambda d: (d / "model.safetensors").write_bytes(b"\xff" * 64), "damaged or not a safetensors"),
    "overlapping": (header(lambda h: h[NORM].__setitem__("data_offsets", [0, 32])), "damaged or not a safetensors"),
    "oversized": (header(lambda h: h[NORM].__setitem__("data_offsets", [0, 2**60])), "damaged or not a safetensors"),
    "renamed": (tensors(lambda t: t.update({"model.nrom.weight": t.pop(NORM)})),
                f"lacks the tensor '{NORM}' that its sizes call for: did you mean 'model.nrom.weight'"),
    "one too many": (tensors(lambda t: t.update(more=torch.ones(2))), "unexpected tensor 'more'"),
    "wrong shape": (tensors(lambda t: t.update({NORM: torch.ones(9)})), rf"'{NORM}' has shape \[9\].* \[8\]"),
    "not finite": (tensors(lambda t: t.update({NORM: torch.full((8,), torch.nan)})), f"'{NORM}' holds NaN"),
    "whole numbers": (tensors(lambda t: t.update({NORM: torch.ones(8, dtype=torch.int8)})), "is of torch.int8"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "no weights in"),
    "no JSON": (lambda d: (d / "config.json").write_text("{"), "not JSON"),
    "deep JSON": (lambda d: (d / "config.json").write_text("[" * 100_000), "not JSON"),
    "a list": (lambda d: (d / "config.json").write_text("[]"), "not a group of values"),
    "unknown key": (config(attention_sinks=4), "unknown key 'attention_sinks'"),
    "quantised": (config(quantization_config={"bits": 4}), "unknown key 'quantization_config'"),
    "layers in turn": (config(layer_types=["full_attention", "sliding_attention"]), "'layer_types' is"),
    "unknown type": (config(model_type="lama"), "model type 'lama': did you mean 'llama'"),
    "another activation": (config(hidden_act="relu"), "'hidden_act' is \"relu\", longwave has \"silu\""),
    "another rotation": (config(rope_parameters=dict(rope_type="dynamic", factor=2.0)), "'dynamic' is not among"),
    "unknown rotation": (config(rope_parameters=dict(rope_type="default", spin=2.0)), "unknown key 'spin'"),
    "negative width": (config(hidden_size=-8), "'hidden_size' must be a number from 1"),
    "width a text": (config(hidden_size="8"), "'hidden_size' must be a number from 1"),
    "absurd width": (config(hidden_size=10**18), "'hidden_size' must be a number from 1"),
    "large vocabulary": (config(vocab_size=2**30), "has shape"),
    "absurd depth": (config(num_hidden_layers=10**9), "'num_hidden_layers' must be a number from 1"),
    "deeper": (config(num_hidden_layers=3), "lacks the tensor 'model.layers.2"),
    "heads that do not fit": (config(num_attention_heads=3), "equal parts"),
    "no size": (config(intermediate_size=None), "'intermediate_size' must be"),
    "a pickle with code": (pickled({"w": Evil()}), "nothing was run"),
    "a bare pickle": (pickled(pickle.dumps(Evil())), "nothing was run"),
    "no pickle": (pickled(b"hello" * 100), "nothing was run|not a torch file"),
    "a pickle of text": (pickled({"w": "text"}), "not a dictionary of tensors"),
    "shards elsewhere": (indexed({NORM: "../../etc/passwd"}), "names the file '../../etc/passwd'"),
    "shards lost": (indexed({NORM: "b.safetensors"}), "names the file 'b.safetensors'"),
    "shards of nothing": (indexed([1]), "does not say where tensors are"),
    "another tokenizer": (lambda d: (d / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {"a": 40}}, "added_tokens": []})), "has the token 40, the model has 40 tokens"),
    "no tokenizer": (lambda d: (d / "tokenizer.json").write_text("{}"), "it is not a tokenizer"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_told_apart(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    twin("llama", tmp_path / "theirs")
    spoil, words = BAD[kind]
    spoil(tmp_path / "theirs")
    with pytest.raises(UserError, match=words):
        weights.bring(tmp_path / "theirs", tmp_path / "ours")
    assert [p.name for p in tmp_path.iterdir()] == ["theirs"]  # nothing was run, nothing half-written


def test_files_with_any_bit_changed(tmp_path):
    """A reader either answers or says what is wrong: no other error, whatever byte changes."""
    twin("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    raw = file.read_bytes()
    for at in torch.randint(2000, (40,)).tolist():
        file.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        with contextlib.suppress(UserError):
            lw.load(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_with_any_byte_changed(zipped, tmp_path):
    file = tmp_path / "model.pth"
    torch.save({f"a.{i}": torch.randn(3, 4) for i in range(3)}, file, _use_new_zipfile_serialization=zipped)
    raw = file.read_bytes()
    for at, new in torch.stack([torch.randint(len(raw), (60,)), torch.randint(256, (60,))], 1).tolist():
        for spoilt in (raw[:at], raw[:at] + bytes([new]) + raw[at + 1 :]):
            file.write_bytes(spoilt)
            with pytest.raises(UserError):  # whole or not, it is no RWKV
                lw.load(file)


def test_a_hub_id_needs_the_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="there is no folder nobody/nothing, and the hub does not give it"):
        lw.load("nobody/nothing")


def test_what_the_hub_gave_once_is_there_without_a_network(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--nobody--tiny-gpt2"
    theirs = twin("gpt2", kept / "snapshots" / "0123")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123")
    tokens = torch.randint(40, (1, 9))
    torch.testing.assert_close(lw.load("nobody/tiny-gpt2")(tokens)[0], logits(theirs, tokens), rtol=0, atol=CLOSE)


def trained_tokenizer(folder, vocab):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<end>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    made.train_from_iterator(["the capital of France is Paris, the café is in the city"] * 5, trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").unlink()
    config(eos_token_id=1)(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    return made


def test_a_tokenizer_comes_with_the_weights(tmp_path, capsys):
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **{**GPT, "vocab_size": 280})).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer = trained_tokenizer(tmp_path / "theirs", 270)
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert "gpt2: 28 tensors matched, 0 missing, 0 unexpected; logits differ" in capsys.readouterr().out
    tokens = tokens_of(tmp_path / "ours")
    text = "the café 🐈 is"
    assert tokens.encode(text) == tokenizer.encode(text).ids
    assert tokens.ends == {0, 1}  # what the tokenizer says, and the model's config
    stream = tokens.decoder()
    pieces = [stream.add(token) for token in tokens.encode(text)]
    assert "".join(pieces) + stream.finish() == text
    assert "" in pieces  # a cat takes several tokens

    prompt = torch.tensor([tokenizer.encode("the capital").ids])
    wanted = theirs.generate(prompt, max_new_tokens=9, do_sample=False, eos_token_id=[0, 1], pad_token_id=0)[0]
    run = ["generate", str(tmp_path / "ours"), "the capital", "--max-tokens", "9", "--temperature", "0"]
    assert main(run) == 0
    assert capsys.readouterr().out == tokenizer.decode(wanted.tolist()) + "\n"

    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "back"), "--to", "hf"]) == 0
    assert {p.name for p in (tmp_path / "back").iterdir()} >= {"config.json", "tokenizer.json", "model.safetensors"}
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "bare"), "--to", "safetensors"]) == 0
    assert not (tmp_path / "bare" / "config.json").exists()
