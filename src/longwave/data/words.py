"""Words as characters: bytes of UTF-8 plus one, between two marks; 0 is no character. ELMo's input."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

BEGIN, END, FIRST, LAST = 257, 258, 259, 260  # of a word; and the one character of the words around a sentence
LONGEST = 50  # characters of a word, marks counted


def characters(sentences: Sequence[Sequence[str]]) -> tuple[Int[Tensor, "B T W"], Int[Tensor, " B"]]:
    """Each sentence's words between a first and a last mark; and how many there are with these."""
    rows = [[[FIRST], *(_bytes(word) for word in words), [LAST]] for words in sentences]
    flat = [torch.tensor([BEGIN, *word, END]) for row in rows for word in row]
    lengths = torch.tensor([len(row) for row in rows])
    words = pad_sequence(flat, batch_first=True)
    return pad_sequence(words.split(lengths.tolist()), batch_first=True), lengths


def _bytes(word: str) -> list[int]:
    return [1 + byte for byte in word.encode("utf-8", errors="surrogateescape")[: LONGEST - 2]]
