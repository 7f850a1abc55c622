"""GGUF: what transformers' own reader makes of a file is what we make of it; damaged files are told apart."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import longwave as lw
from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights.gguf import Header
from longwave.models.weights.hub import PACKAGED, fetch
from test_parity import logits

SIZES = dict(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=96, max_position_embeddings=32)  # fmt: skip
VARIANTS = {
    "plain": {},
    "tied": dict(tie_word_embeddings=True, rms_norm_eps=1e-5),
    "wide heads": dict(head_dim=24),
    "biases": dict(attention_bias=True, mlp_bias=True),
    "linear": dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e5)),
}
ERROR = {"f32": 0.0, "f16": 2**-11, "bf16": 2**-8, "q8_0": 1 / 127}  # of a number, relative to the largest of its block


def twin(folder, **options):
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **{**SIZES, **options})).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    theirs.save_pretrained(folder)
    return theirs


def tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<end>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    made.train_from_iterator(["the cat sat on the mat, the cat thought"], trainer)
    made.save(str(folder / "tokenizer.json"))
    about = dict(eos_token="<end>", chat_template="{{ messages }}")
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


@pytest.mark.parametrize("name", VARIANTS)
def test_there_and_back_is_exact(name, tmp_path):
    theirs = twin(tmp_path / "hf", **VARIANTS[name])
    assert weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf").difference <= 1e-5
    weights.bring(tmp_path / "gguf", tmp_path / "ours")
    ours, before = lw.load(tmp_path / "ours").state_dict(), lw.load(tmp_path / "hf").state_dict()
    assert ours.keys() == before.keys()
    assert all(torch.equal(ours[key], before[key]) for key in ours)
    tokens = torch.randint(300, (2, 9))
    mine = lw.load(tmp_path / "gguf" / "model.gguf").eval()(tokens)[0]
    torch.testing.assert_close(mine, logits(theirs, tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ERROR)
def test_numbers_of_each_type(dtype, tmp_path):
    """Within the rounding of the type; transformers reads the same file to the same logits."""
    twin(tmp_path / "hf")
    report = weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf", dtype)
    ours, before = lw.load(tmp_path / "gguf"), lw.load(tmp_path / "hf")
    far = max((ours.state_dict()[k] - t).abs().max() / t.abs().max() for k, t in before.state_dict().items())
    assert far <= ERROR[dtype]
    assert (report.difference <= 1e-5) == (dtype == "f32")
    theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path / "hf")).eval()
    read = load_gguf_checkpoint(tmp_path / "gguf" / "model.gguf", return_tensors=True, model_to_load=theirs)
    theirs.load_state_dict(read["tensors"])
    tokens = torch.randint(300, (2, 9))
    torch.testing.assert_close(ours.eval()(tokens)[0], logits(theirs, tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_blocks_that_are_only_read(kind, tmp_path):
    """Against their definition by the package, which writes none of the K kinds: random blocks with small scales."""
    file, kind = tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 256, (4, 2, size), dtype=np.uint8)
    half = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    blocks[..., -2:] = half
    blocks[..., :2], blocks[..., 2:4] = half, half
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_tensor("t", blocks.reshape(4, -1), raw_dtype=kind)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    entry = Header(file).entries["t"]
    assert entry.shape == (4, 2 * numbers)
    wanted = gguf.dequantize(gguf.GGUFReader(file).tensors[0].data, kind)
    assert np.array_equal(entry.load().numpy(), wanted)
    assert np.ptp(wanted) > 0


@pytest.mark.parametrize("said", ["tokenizer_config.json", "generation_config.json"])
def test_the_tokenizer_is_in_the_file(said, tmp_path):
    twin(tmp_path / "hf", eos_token_id=0)
    tokenizer(tmp_path / "hf")
    if said == "generation_config.json":
        (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(dict(chat_template="{{ messages }}")))
    weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf")
    weights.bring(tmp_path / "gguf", tmp_path / "ours")
    before, after = tokens_of(tmp_path / "hf"), tokens_of(tmp_path / "ours")
    for text in ("the cat sat on 1234 mats", " é\n\tthe<end>the", ""):
        assert after.encode(text) == before.encode(text)
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))
    assert after.ends == before.ends
    about = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())
    assert about["chat_template"] == "{{ messages }}"


def edited(data, old, new):
    assert data.count(old) >= 1
    return data.replace(old, new, 1)


BAD = {
    "empty": (lambda d: b"", "not a GGUF"),
    "another format": (lambda d: b"GGML" + d[4:], "not a GGUF"),
    "version": (lambda d: d[:4] + struct.pack("<I", 9) + d[8:], "version 9"),
    "tensors beyond number": (lambda d: d[:8] + struct.pack("<Q", 2**62) + d[16:], "claims"),
    "fields beyond number": (lambda d: d[:16] + struct.pack("<Q", 2**40) + d[24:], "claims"),
    "key beyond length": (lambda d: d[:24] + struct.pack("<Q", 2**63) + d[32:], "claims"),
    "cut in its header": (lambda d: d[:200], "damaged"),
    "cut in its tensors": (lambda d: d[:-40], "lies behind its end"),
    "architecture": (lambda d: edited(d, b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0manba"), "architecture"),
    "key unknown": (lambda d: edited(d, b"llama.block_count", b"llama.block_cxxnt"), "block_count"),
    "tensor unknown": (lambda d: edited(d, b"blk.1.attn_q", b"blk.7.attn_q"), "lacks the tensor"),
    "type unknown": (lambda d: edited(d, b"output_norm.weight" + struct.pack("<IQI", 1, 64, 0), b"output_norm.weight"
                     + struct.pack("<IQI", 1, 64, 77)), "type 77"),
    "shape": (lambda d: edited(d, b"output_norm.weight" + struct.pack("<IQI", 1, 64, 0), b"output_norm.weight"
              + struct.pack("<IQI", 1, 2**60, 0)), "lies behind its end"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_told_apart(kind, tmp_path):
    twin(tmp_path / "hf")
    weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf")
    change, reason = BAD[kind]
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(change((tmp_path / "gguf" / "model.gguf").read_bytes()))
    with pytest.raises(UserError, match=reason) as told:
        weights.bring(bad, tmp_path / "out")
    assert "bad.gguf" in str(told.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.gguf", "gguf", "hf"]


def test_files_with_any_byte_changed(tmp_path):
    """Read, or told apart by an error for a person: nothing else."""
    twin(tmp_path / "hf")
    tokenizer(tmp_path / "hf")
    weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf", "q8_0")
    data = (tmp_path / "gguf" / "model.gguf").read_bytes()
    bad, rng, told = tmp_path / "bad.gguf", np.random.default_rng(0), 0
    header = len(data) - sum(
        p.nbytes for p in (t.data for t in gguf.GGUFReader(tmp_path / "gguf" / "model.gguf").tensors)
    )
    for i in range(150):
        changed = bytearray(data)
        changed[rng.integers(header if i % 5 else 1500)] = rng.integers(256)
        bad.write_bytes(changed)
        try:
            lw.load(bad)
        except UserError:
            told += 1
    assert told > 20


def test_what_gguf_cannot_say_is_not_written(tmp_path):
    twin(tmp_path / "hf", rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0,
                                               original_max_position_embeddings=16))  # fmt: skip
    with pytest.raises(UserError, match="yarn"):
        weights.export(tmp_path / "hf", tmp_path / "gguf", "gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def test_smollm2_knows_the_capital_of_france():
    try:
        file = fetch("smollm2")
    except UserError as missing:
        pytest.skip(str(missing))
    model = lw.load(file)
    tokens = tokens_of(model.home)
    prompt = tokens.prompt("The capital of France is")
    found = lw.generate(model, prompt, max_tokens=3, temperature=0.0)
    assert tokens.decode(found).startswith(" Paris")


def test_smollm2_without_its_package(monkeypatch):
    monkeypatch.setitem(PACKAGED, "smollm2", ("no_such_package", "1.0", "model.gguf"))
    with pytest.raises(UserError, match="pip install"):
        fetch("smollm2")
