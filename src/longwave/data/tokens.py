"""Tokens and text. By default a token is a byte, so every text has tokens and every token stream is bytes."""

import codecs
from collections.abc import Sequence

from longwave.data.text import END


class Bytes:
    """UTF-8 bytes as tokens; END (0) stands before and between documents."""

    size = 256
    end = END

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="surrogateescape"))  # a command line's stray bytes

    def decode(self, tokens: Sequence[int]) -> str:
        """Bytes that are no UTF-8 become the replacement character."""
        return bytes(tokens).decode("utf-8", errors="replace")

    def decoder(self) -> "ByteStream":
        return ByteStream()


class ByteStream:
    """Decodes token by token: gives out characters as soon as their last byte is there."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)
