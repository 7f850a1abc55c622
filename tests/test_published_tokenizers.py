"""GPT-2's vocabulary and merges, the files older than tokenizer.json: the ids of transformers, nothing lost."""

import gzip
import json
import random

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Tokenizer

import longwave as lw
from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights.byte_tokenizer import letter

LETTERS = [letter(b) for b in range(256)]
SMALL = {word: i for i, word in enumerate([*LETTERS, "he", "the", "Ġthe", "<|endoftext|>"])}
MERGES = "#version: 0.2\nh e\nt he\nĠ the\n"
SIZES = dict(n_embd=8, n_layer=1, n_head=2, n_positions=16, eos_token_id=259, bos_token_id=259)


def gpt2(folder, vocab, merges):
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **SIZES, vocab_size=len(vocab))).save_pretrained(
        folder
    )
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text(merges, encoding="utf-8")


def text(draw):
    """Letters of all scripts, spaces of all kinds, digits, contractions."""
    common = " \n\t'sdmtlvreTHE0123456789.,!_-<|>\u00a0\u3000éß中🐈\u0301"
    return "".join(draw.choice(common) if draw.random() < 0.7 else chr(draw.randrange(0xD800)) for _ in range(30))


def test_gpt2s_vocabulary(shared_data, tmp_path):
    names = {"vocab.json": "gpt2_encoder.json.gz", "merges.txt": "gpt2_vocab.bpe.gz"}
    read = {name: gzip.decompress((shared_data / "tokenizers" / gz).read_bytes()) for name, gz in names.items()}
    vocab = json.loads(read["vocab.json"])
    gpt2(tmp_path / "hf", vocab, read["merges.txt"].decode())
    weights.bring(tmp_path / "hf", tmp_path / "ours")
    ours, theirs = tokens_of(tmp_path / "ours"), GPT2Tokenizer.from_pretrained(tmp_path / "hf")
    assert ours.size == len(vocab) == 50257
    assert ours.ends == {259}
    draw = random.Random(0)
    for _ in range(10_000):
        said = text(draw)
        ids = ours.encode(said)
        assert ours.decode(ids) == said
    for said in [text(draw) for _ in range(300)] + ["a<|endoftext|>b"]:
        assert ours.encode(said) == theirs(said)["input_ids"]
    assert ours.encode("Hello world") == [15496, 995]


def test_stray_bytes_survive(tmp_path):
    gpt2(tmp_path / "hf", SMALL, MERGES)
    model = lw.load(tmp_path / "hf")
    tokens = tokens_of(model.home)
    words = {i: word for word, i in SMALL.items()}
    assert tokens.encode("the the") == [SMALL["the"], SMALL["Ġthe"]]
    draw = random.Random(0)
    for _ in range(2000):
        raw = draw.randbytes(draw.randrange(12))
        ids = tokens.encode(raw.decode("utf-8", errors="surrogateescape"))
        assert bytes(LETTERS.index(each) for i in ids for each in words[i]) == raw
        stream = tokens.decoder()
        assert "".join(map(stream.add, ids)) + stream.finish() == raw.decode("utf-8", errors="replace")


@pytest.mark.parametrize(("vocab", "merges", "words"), [
    (SMALL, MERGES + "q u\n", "merge 'q u' is not of words"),
    (SMALL, "he", "merge 'he' is not of words"),
    ({**SMALL, "zzz": 999}, MERGES, "has the token 999"),
    ([1], MERGES, "not a group of values"),
    ({letter(0): "x"}, "", "it is not a tokenizer"),
])  # fmt: skip
def test_bad_files_are_told_apart(vocab, merges, words, tmp_path):
    gpt2(tmp_path / "hf", vocab, merges)
    with pytest.raises(UserError, match=words):
        weights.bring(tmp_path / "hf", tmp_path / "ours")
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]
