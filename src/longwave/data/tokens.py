"""Tokens and text. By default a token is a byte, so every text has tokens and every token stream is bytes.

Imported models bring a tokenizer.json, which lies beside their weights and is read by the `tokenizers` package, or the
vocabulary of RWKV's "world" models.
"""

import codecs
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from longwave.data.text import END
from longwave.errors import UserError
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
    def prompt(self, text: str) -> list[int]:
        """The tokens of a text that stands at the beginning."""

    def decode(self, tokens: Sequence[int]) -> str: ...
    def decoder(self, after: Sequence[int] = ()) -> Stream: ...


def tokens_of(home: Path | None) -> Tokens:
    """The tokenizer in a model's folder; bytes where there is none."""
    if home is None:
        return Bytes()
    if (home / "tokenizer.json").is_file():
        return Pieces(home / "tokenizer.json")
    worlds = sorted(home.glob(WORLD))
    return World(worlds[-1]) if worlds else Bytes()


class Bytes:
    """UTF-8 bytes as tokens; END (0) stands before and between documents."""

    size = 256
    end = END
    ends = frozenset({END})

    def prompt(self, text: str) -> list[int]:
        return [END, *self.encode(text)]

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

    def prompt(self, text: str) -> list[int]:
        return [END, *self.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        stream = self.decoder()
        return "".join(map(stream.add, tokens)) + stream.finish()

    def decoder(self, after: Sequence[int] = ()) -> ByteStream:
        return ByteStream(self._words)


class Pieces:
    """A tokenizer.json. The files tokenizer_config, generation_config and config beside it say what ends a text."""

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as missing:
            raise UserError(f"{file} needs: pip install 'longwave[tokenizers]'") from missing
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as problem:  # the package's errors have no class of their own
            raise UserError(f"{file} is damaged: {str(problem).splitlines()[0]}") from problem
        self.size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.ends = frozenset(self._ends(file.parent))

    def encode(self, text: str) -> list[int]:
        return self._encode(text, whole=False)

    def prompt(self, text: str) -> list[int]:
        """With what the tokenizer puts before a text; where that is nothing at all, the token that ends one."""
        return self._encode(text, whole=True) or sorted(self.ends)[:1]

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

    def _ends(self, folder: Path) -> list[int]:
        found: list[Any] = []
        for name, key in (("generation_config.json", "eos_token_id"), ("config.json", "eos_token_id"),
                          ("tokenizer_config.json", "eos_token")):  # fmt: skip
            if (folder / name).is_file():
                try:
                    value = json.loads((folder / name).read_text(encoding="utf-8")).get(key)
                except (OSError, ValueError, AttributeError, RecursionError) as problem:
                    raise UserError(f"{folder / name} is damaged: it is not JSON") from problem
                found += value if isinstance(value, list) else [value]
        words = [each.get("content") if isinstance(each, dict) else each for each in found]
        ids = [self._tokenizer.token_to_id(each) if isinstance(each, str) else each for each in words]
        return [each for each in ids if isinstance(each, int) and not isinstance(each, bool)]


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
