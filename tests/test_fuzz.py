"""Readers of what others wrote: whatever is in a file, it is read or told apart."""

import contextlib
import json
import struct

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights import beside
from test_parity import twin
from test_rwkv import random_rwkv7

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4),
    st.lists(st.integers(-5, 2**66), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
FEW = settings(max_examples=15)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A Llama in two shards with a tokenizer beside it."""
    folder = tmp_path_factory.mktemp("published")
    twin("llama", folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    places = {name: f"{i % 2}.safetensors" for i, name in enumerate(names)}
    for file in ("0.safetensors", "1.safetensors"):
        safetensors.torch.save_file({n: tensors[n] for n in names if places[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    words = {chr(97 + i): i for i in range(20)} | {"ab": 20}
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", added_tokens=[dict(id=21, content="<e>", special=True)], normalizer=None, pre_tokenizer=None,
        post_processor=None, decoder=None, model=dict(type="BPE", vocab=words, merges=["a b"]))))  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(eos_token="<e>")))
    return folder


def paths(value, at=()):
    """Every place in a JSON value."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(inside)[:6]:
        yield from paths(each, (*at, key))


def changed(value, at, new):
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy


def told_apart(folder):
    """Read, tokenizer and all, or an error for a person: no other."""
    with contextlib.suppress(UserError):
        beside.check_tokenizer(folder, weights.load(folder))
    with contextlib.suppress(UserError):
        tokens = tokens_of(folder)
        tokens.decode(tokens.encode("abc"))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
                                  "generation_config.json"])  # fmt: skip
@FEW
@given(data=st.data())
def test_any_value_in_a_file_beside(name, published, data):
    file = published / name
    before = file.read_text()
    value = json.loads(before)
    at = data.draw(st.sampled_from(list(paths(value))))
    try:
        file.write_text(json.dumps(changed(value, at, data.draw(ODD))))
        told_apart(published)
    finally:
        file.write_text(before)


@FEW
@given(data=st.data())
def test_any_value_in_the_header_of_safetensors(published, data):
    file = published / "0.safetensors"
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    at = data.draw(st.sampled_from(list(paths(header))))
    text = json.dumps(changed(header, at, data.draw(ODD))).encode()
    try:
        file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])
        told_apart(published)
    finally:
        file.write_bytes(raw)


@FEW
@given(name=st.sampled_from(sorted(random_rwkv7())), shape=st.lists(st.integers(0, 9), max_size=4))
def test_any_shape_of_a_tensor(name, shape, tmp_path_factory):
    """The sizes of a .pth are those of its tensors."""
    folder = tmp_path_factory.mktemp("pth")
    torch.save({**random_rwkv7(), name: torch.ones(shape)}, folder / "model.pth")
    told_apart(folder)


@FEW
@given(data=st.binary(max_size=200), name=st.sampled_from(["a.pth", "a.gguf", "model.safetensors", "rwkv_vocab_1.txt"]))
def test_any_bytes(data, name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    head = {"a.gguf": b"GGUF\3\0\0\0", "model.safetensors": struct.pack("<Q", 40)}.get(name, b"")
    (folder / name).write_bytes(head + data)
    with pytest.raises(UserError):
        weights.load(folder / name if name[0] == "a" else folder)
    if name.startswith("rwkv"):
        with pytest.raises(UserError):
            tokens_of(folder)
