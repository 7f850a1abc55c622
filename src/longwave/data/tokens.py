"""Tokens and text. By default a token is a byte, so every text has tokens and every token stream is bytes.

Imported models bring a tokenizer.json, which lies beside their weights and is read by the `tokenizers` package, or the
vocabulary of RWKV's "world" models.
"""

import codecs
import functools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from longwave.data.text import END
from longwave.errors import UserError
from longwave.files import write_whole
from longwave.models.weights.byte_tokenizer import letter
from longwave.models.weights.world import WORLD, read_words


@runtime_checkable
class Stream(Protocol):
    """Decodes token by token: gives out what is certain."""

    def add(self, token: int) -> str: ...
    def finish(self) -> str: ...


@runtime_checkable
class Tokens(Protocol):
    size: int
    ends: frozenset[int]  # any of these ends a text

    def encode(self, text: str) -> list[int]: ...
    def prompt(self, text: str, most: int | None = None) -> list[int]:
        """The tokens of a text that stands at the beginning; at most so many, which takes from the text's end."""

    def decode(self, tokens: Sequence[int]) -> str: ...
    def decoder(self, after: Sequence[int] = ()) -> Stream: ...


def tokens_of(home: Path | None) -> Tokens:
    """The tokenizer in a model's folder; bytes where there is none."""
    if home is None:
        return Bytes()
    if (home / "tokenizer.json").is_file():
        return read_pieces(home / "tokenizer.json")
    worlds = sorted(home.glob(WORLD))
    return World(worlds[-1]) if worlds else Bytes()


class Bytes:
    """UTF-8 bytes as tokens; END (0) stands before and between documents."""

    size = 256
    end = END
    ends = frozenset({END})

    def prompt(self, text: str, most: int | None = None) -> list[int]:
        return [END, *self.encode(text)][:most]

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="surrogateescape"))  # a command line's stray bytes

    def decode(self, tokens: Sequence[int]) -> str:
        """Bytes that are no UTF-8 become the replacement character."""
        return bytes(tokens).decode("utf-8", errors="replace")

    def decoder(self, after: Sequence[int] = ()) -> "ByteStream":
        return ByteStream([bytes([i]) for i in range(256)])


class ByteStream:
    """Decodes token by token: gives out characters as soon as their last byte is there."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words, self._decoder = words, codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        return self._decoder.decode(self._words[token] if token < len(self._words) else b"")

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class World:
    """RWKV's vocabulary of strings of bytes: a text becomes the longest word that it begins with, and so does the rest.

    0 stands before and between documents.
    """

    ends = frozenset({END})

    def __init__(self, file: Path) -> None:
        self._ids = read_words(file)
        self.size = max(self._ids.values()) + 1
        self._words = [b""] * self.size
        lengths: dict[bytes, set[int]] = {}
        for word, i in self._ids.items():
            self._words[i] = word
            lengths.setdefault(word[:2], set()).add(len(word))
        self._longest_first = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        data, at, found = text.encode("utf-8", errors="surrogateescape"), 0, []
        while at < len(data):
            lengths = (*self._longest_first.get(data[at : at + 2], ()), 1)
            n = next(n for n in lengths if data[at : at + n] in self._ids)
            found.append(self._ids[data[at : at + n]])
            at += n
        return found

    def prompt(self, text: str, most: int | None = None) -> list[int]:
        return [END, *self.encode(text)][:most]

    def decode(self, tokens: Sequence[int]) -> str:
        stream = self.decoder()
        return "".join(map(stream.add, tokens)) + stream.finish()

    def decoder(self, after: Sequence[int] = ()) -> ByteStream:
        return ByteStream(self._words)


class Pieces:
    """A tokenizer of the `tokenizers` package, and which of its tokens end a text or begin a translation."""

    def __init__(self, tokenizer: Any, ends: Iterable[int], start: int | None = None) -> None:
        tokenizer.no_padding()  # a file may ask for both; texts are as long as they are
        tokenizer.no_truncation()
        self._tokenizer, self.ends, self.start = tokenizer, frozenset(ends), start
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str) -> list[int]:
        return self._encode(text, whole=False)

    def prompt(self, text: str, most: int | None = None) -> list[int]:
        """With what the tokenizer puts around a text; where that is nothing at all, the token that ends one."""
        if most is None:
            return self._encode(text, whole=True) or sorted(self.ends)[:1]
        self._tokenizer.enable_truncation(most)
        found = self._encode(text, whole=True)[:most] or sorted(self.ends)[:1]
        self._tokenizer.no_truncation()
        return found

    def _encode(self, text: str, whole: bool) -> list[int]:
        """A command line's stray bytes, which no tokenizer takes, are single tokens where it is one of bytes."""
        first, *rest = re.split(r"([\udc80-\udcff])", text)
        found = self._tokenizer.encode(first, add_special_tokens=whole).ids
        for stray, part in zip(rest[::2], rest[1::2], strict=True):
            byte = self._tokenizer.token_to_id(letter(ord(stray) - 0xDC00))
            found += self.encode("\N{REPLACEMENT CHARACTER}") if byte is None else [byte]
            found += self.encode(part)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def decoder(self, after: Sequence[int] = ()) -> "PieceStream":
        return PieceStream(self, after)

    @property
    def json(self) -> str:
        return self._tokenizer.to_str()

    def save(self, folder: Path) -> None:
        """Write what `read_pieces` reads."""
        facts = json.dumps({"eos_token_id": sorted(self.ends), "decoder_start_token_id": self.start})
        for name, text in (("tokenizer.json", self.json), ("generation_config.json", facts)):
            write_whole(folder / name, functools.partial(Path.write_text, data=text + "\n", encoding="utf-8"))


def read_pieces(file: Path) -> Pieces:
    """A tokenizer.json. The files tokenizer_config, generation_config and config beside it say what ends a text."""
    try:
        from tokenizers import Tokenizer
    except ImportError as missing:
        raise UserError(f"{file} needs: pip install 'longwave[tokenizers]'") from missing
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as problem:  # the package's errors have no class of their own
        raise UserError(f"{file} is damaged: {str(problem).splitlines()[0]}") from problem
    found = [
        value
        for name, key in (("generation_config", "eos_token_id"), ("config", "eos_token_id"),
                          ("tokenizer_config", "eos_token"))
        for value in _listed(_beside(file.parent / f"{name}.json", key))
    ]  # fmt: skip
    words = [each.get("content") if isinstance(each, dict) else each for each in found]
    ids = [tokenizer.token_to_id(each) if isinstance(each, str) else each for each in words]
    homes = [file.parent / f"{name}.json" for name in ("generation_config", "config")]
    starts = [value for home in homes if _whole(value := _beside(home, "decoder_start_token_id"))]
    return Pieces(tokenizer, [each for each in ids if _whole(each)], next(iter(starts), None))


def learn_pieces(texts: Sequence[str], size: int) -> Pieces:
    """Byte-pair encoding of at most `size` tokens, learnt from these texts; no text is without tokens."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    except ImportError as missing:
        raise UserError("learning a tokenizer needs: pip install 'longwave[tokenizers]'") from missing
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<s>", "</s>"]
    if size < len(alphabet) + len(special):
        raise UserError(f"{size} tokens have no room for the {len(alphabet)} bytes and {len(special)} marks")
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False))  # fmt: skip
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return Pieces(tokenizer, [1], start=0)


def _beside(file: Path, key: str) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8")).get(key)
    except (OSError, ValueError, AttributeError, RecursionError) as problem:
        raise UserError(f"{file} is damaged: it is not JSON") from problem


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


class PieceStream:
    """A character may take several tokens, and a space belong to the next one: the last few are decoded together."""

    def __init__(self, tokens: Pieces, after: Sequence[int]) -> None:
        self._tokens, self._held = tokens, list(after)[-4:]
        self._known = len(self._held)

    def add(self, token: int) -> str:
        self._held.append(token)
        before = self._tokens.decode(self._held[: self._known])
        now = self._tokens.decode(self._held)
        if now.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self._held, self._known = self._held[self._known :], len(self._held) - self._known
        return now[len(before) :]

    def finish(self) -> str:
        before = self._tokens.decode(self._held[: self._known])
        return self._tokens.decode(self._held)[len(before) :]
