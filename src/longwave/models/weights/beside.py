"""What lies beside the weights: tokenizers, what ends a text, how a conversation is written."""

import json
import shutil
from pathlib import Path
from typing import Any

from longwave.errors import UserError
from longwave.files import write_whole
from longwave.models.model import Model
from longwave.models.weights.byte_tokenizer import letter
from longwave.models.weights.config import read_config
from longwave.models.weights.gguf_tokenizer import BYTES
from longwave.models.weights.world import WORLD, read_words

BESIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "modules.json",  # of sentence-transformers, with the next two
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
VOCAB, MERGES = "vocab.json", "merges.txt"  # GPT-2's own files, older than tokenizer.json
SPECIAL = ("<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>")  # of GPT-2 and RoBERTa


def check_tokenizer(folder: Path, model: Model) -> None:
    file, size = folder / "tokenizer.json", model.n_tokens
    if not size:
        return
    if not file.exists():
        for world in folder.glob(WORLD):
            most = max(read_words(world).values())
            if most >= size:
                raise UserError(f"{world} has the token {most}, the model has {size}: they do not belong together")
        return
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        vocab = found["model"]["vocab"]
        ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
        most = max([*ids, *(each["id"] for each in found.get("added_tokens") or [])], default=-1)
        if most >= size:
            raise UserError(f"{file} has the token {most}, the model has {size} tokens: they do not belong together")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError, KeyError, TypeError) as problem:
        raise UserError(f"{file} is damaged: it is not a tokenizer") from problem


def copy(home: Path, folder: Path) -> None:
    for file in (*(home / name for name in BESIDE), *home.glob(WORLD)):
        if file.is_file():
            to = folder / file.relative_to(home)
            to.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, to)


def keep_ends(home: Path, folder: Path) -> None:
    """What ends a text, where only config.json said it."""
    ends = read_config(home / "config.json").get("eos_token_id") if (home / "config.json").exists() else None
    if ends is not None and not (folder / "generation_config.json").exists():
        text = json.dumps({"eos_token_id": ends}) + "\n"
        write_whole(folder / "generation_config.json", lambda file: file.write_text(text, encoding="utf-8"))


def only_merges(home: Path) -> bool:
    """Whether the tokenizer is a vocabulary and merges, of byte-level BPE."""
    if (home / "tokenizer.json").exists() or not all((home / name).is_file() for name in (VOCAB, MERGES)):
        return False
    return letter(0) in read_config(home / VOCAB)


def write_merges(home: Path, folder: Path) -> None:
    """The same as a tokenizer.json, with what else lies there."""
    vocab = read_config(home / VOCAB)
    try:
        lines = (home / MERGES).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{home / MERGES} is damaged: it cannot be read as text") from problem
    merges = [line for line in lines if line and not line.startswith("#version")]
    for line in merges:
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocab.keys():
            raise UserError(f"{home / MERGES}: the merge {line[:60]!r} is not of words in {VOCAB}")
    added = [dict(id=vocab[word], content=word, special=True, normalized=False, single_word=False, lstrip=False,
                  rstrip=False) for word in SPECIAL if word in vocab]  # fmt: skip
    made: dict[str, Any] = dict(version="1.0", added_tokens=added, pre_tokenizer=BYTES, decoder=BYTES,
                                model=dict(type="BPE", vocab=vocab, merges=merges))  # fmt: skip
    copy(home, folder)
    if (home / "config.json").is_file():
        shutil.copyfile(home / "config.json", folder / "config.json")
    (folder / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
