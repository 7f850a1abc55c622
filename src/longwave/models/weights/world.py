"""The vocabulary of RWKV's "world" models: a line a word, `257 '\\t\\t' 2`: number, Python literal, bytes."""

import ast
from pathlib import Path

from longwave.errors import UserError

WORLD = "rwkv_vocab*.txt"  # as published: rwkv_vocab_v20230424.txt
MOST = 1 << 24  # larger numbers are no tokens


def read_words(file: Path) -> dict[bytes, int]:
    """The number of each word, from 1; nothing in the file is run."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{file} is damaged: it cannot be read as text") from problem
    found: dict[bytes, int] = {}
    for n, line in enumerate(lines, start=1):
        if line:
            word, i = _word(line, f"{file} is damaged: line {n}")
            if word in found:
                raise UserError(f"{file} is damaged: line {n} has a word that stands above already")
            found[word] = i
    if len(set(found.values())) < len(found):
        raise UserError(f"{file} is damaged: two of its words have the same number")
    lacking = [i for i in range(256) if bytes([i]) not in found]
    if lacking:
        raise UserError(f"{file} is damaged: it lacks a word for the byte {lacking[0]}")
    return found


def _word(line: str, where: str) -> tuple[bytes, int]:
    number, _, rest = line.partition(" ")
    literal, _, length = rest.rpartition(" ")
    try:
        word, i = ast.literal_eval(literal), int(number)
        data = word.encode("utf-8") if isinstance(word, str) else word
        right = isinstance(data, bytes) and len(data) == int(length) > 0 and 0 < i < MOST
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        right = False
    if not right:
        raise UserError(f"{where} is not a number, a word and its length in bytes")
    return data, i
