"""The byte-level BPE tokenizer in the fields of a GGUF file, as a tokenizer.json, and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longwave.errors import UserError, nearest
from longwave.models.weights.config import Config, read_config

MODEL, PRE, TOKENS, TYPES, MERGES = (f"tokenizer.ggml.{k}" for k in ("model", "pre", "tokens", "token_type", "merges"))
BOS, EOS, ADD_BOS = (f"tokenizer.ggml.{k}" for k in ("bos_token_id", "eos_token_id", "add_bos_token"))
TEMPLATE = "tokenizer.chat_template"
NORMAL, CONTROL, OWN, UNUSED = 1, 3, 4, 5  # kinds of tokens; OWN: a word added by the model's user

BYTES = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")  # fmt: skip


def _split(digits: str) -> dict[str, Any]:
    split = dict(type="Split", pattern={"Regex": WORDS % digits}, behavior="Isolated", invert=False)
    return dict(type="Sequence", pretokenizers=[split, {**BYTES, "use_regex": False}])


PRETOKENIZERS: dict[str, dict[str, Any]] = {  # llama.cpp's name: how text is cut before merges
    "gpt-2": BYTES,
    "smollm": dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), BYTES]),
    "llama-bpe": _split("{1,3}"),
    "qwen2": _split(""),
}


def tokenizer_files(fields: Config) -> dict[str, Any]:
    """The contents of tokenizer.json and of the files beside it."""
    fields.must(MODEL, "gpt2")
    words = _texts(fields, TOKENS)
    types = fields.take(TYPES, [NORMAL] * len(words))
    if not isinstance(types, list) or len(types) != len(words) or len(set(words)) != len(words):
        raise UserError(f"{fields.where} is damaged: {TYPES!r} does not name a kind for each of {len(words)} tokens")
    pre = fields.take(PRE, "gpt-2")
    if pre not in PRETOKENIZERS:
        raise UserError(f"{fields.where}: {PRE!r} is {str(pre)[:40]!r}: {nearest(str(pre), PRETOKENIZERS)}")
    added = [
        dict(id=i, content=word, special=kind == CONTROL, single_word=False, lstrip=False, rstrip=False,
             normalized=False)
        for i, (word, kind) in enumerate(zip(words, types, strict=True)) if kind in (CONTROL, OWN)
    ]  # fmt: skip
    vocab = {word: i for i, (word, kind) in enumerate(zip(words, types, strict=True)) if kind != UNUSED}
    merges = _texts(fields, MERGES)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise UserError(f"{fields.where}: the merge {merge[:60]!r} is not of tokens")
    model = dict(type="BPE", vocab=vocab, merges=merges, dropout=None, unk_token=None, continuing_subword_prefix=None,
                 end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False)  # fmt: skip
    ends = {"bos_token": _word(fields, BOS, words), "eos_token": _word(fields, EOS, words)}
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                     pre_tokenizer=PRETOKENIZERS[pre], post_processor=None, decoder=BYTES, model=model)  # fmt: skip
    if fields.flag(ADD_BOS, False) and ends["bos_token"]:
        tokenizer["post_processor"] = _begins_with(ends["bos_token"], fields.take(BOS))
    about = {key: word for key, word in ends.items() if word}
    if TEMPLATE in fields.values:
        about["chat_template"] = fields.take(TEMPLATE)
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": about}


def _texts(fields: Config, key: str) -> list[str]:
    found = fields.take(key)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UserError(f"{fields.where} is damaged: {key!r} is not a list of texts")
    return found


def _word(fields: Config, key: str, words: list[str]) -> str | None:
    i = fields.take(key, None)
    if i is not None and (not isinstance(i, int) or not 0 <= i < len(words)):
        raise UserError(f"{fields.where} is damaged: {key!r} is {str(i)[:40]}, there are {len(words)} tokens")
    return None if i is None else words[i]


def _begins_with(word: str, i: int) -> dict[str, Any]:
    first, text = {"SpecialToken": {"id": word, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return dict(type="TemplateProcessing", single=[first, text], pair=[first, text, second],
                special_tokens={word: dict(id=word, ids=[i], tokens=[word])})  # fmt: skip


def tokenizer_fields(home: Path, size: int) -> dict[str, Any]:
    """The fields of a GGUF file for the tokenizer in the folder `home`; a model of bytes has none."""
    file = home / "tokenizer.json"
    if not file.is_file():
        return {MODEL: "no_vocab"}
    found = read_config(file)
    try:
        return _fields(found, _about(home), size)
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise UserError(f"{file} is damaged or not a byte-level BPE, the kind that is written to GGUF") from problem


def _about(home: Path) -> Mapping[str, Any]:
    """What tokenizer_config.json says; generation_config.json where it does not say what ends a text."""
    files = [home / name for name in ("tokenizer_config.json", "generation_config.json")]
    own, other = (read_config(file) if file.is_file() else {} for file in files)
    ends = other.get("eos_token_id")
    return {"eos": ends[0] if isinstance(ends, list) and ends else ends, **own}


def _fields(found: dict[str, Any], about: Mapping[str, Any], size: int) -> dict[str, Any]:
    pre = [name for name, cut in PRETOKENIZERS.items() if _plain(cut) == _plain(found["pre_tokenizer"])]
    if found["model"]["type"] != "BPE" or not pre or found.get("normalizer"):
        raise UserError(f"this tokenizer is not written to GGUF: it is none of {', '.join(PRETOKENIZERS)}")
    words, types = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    for word, i in found["model"]["vocab"].items():
        words[i], types[i] = word, NORMAL
    for each in found["added_tokens"]:
        words[each["id"]], types[each["id"]] = each["content"], CONTROL if each["special"] else OWN
    merges = [each if isinstance(each, str) else " ".join(each) for each in found["model"]["merges"]]
    fields: dict[str, Any] = {MODEL: "gpt2", PRE: pre[0], TOKENS: words, TYPES: types, MERGES: merges}
    for key, name in ((BOS, "bos_token"), (EOS, "eos_token")):
        word = about.get(name)
        word = word["content"] if isinstance(word, dict) else word
        if word is not None:
            if word not in words:
                raise UserError(f"tokenizer_config.json: {name!r} is {word!r}, which is not among the tokens")
            fields[key] = words.index(word)
    if EOS not in fields and isinstance(about["eos"], int) and 0 <= about["eos"] < size:
        fields[EOS] = about["eos"]
    fields[ADD_BOS] = BOS in fields and words[fields[BOS]] in json.dumps(found.get("post_processor"))
    if isinstance(about.get("chat_template"), str):
        fields[TEMPLATE] = about["chat_template"]
    return fields


def _plain(cut: dict[str, Any]) -> str:
    """As text, without what changes offsets only."""
    parts = [_plain(each) for each in cut.get("pretokenizers", [])]
    return json.dumps({**cut, "pretokenizers": parts, "trim_offsets": True}, sort_keys=True)
