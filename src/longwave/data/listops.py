"""ListOps expressions with their values, many at a time: [MAX 4 [MIN 2 9 ] 0 ] is 4.

The grammar and sizes are those of the Long Range Arena (Nangia and Bowman 2018; Tay et al. 2021, section 2.2.1): a node
is an operator with probability 1/4 while it is not too deep, with 2 ... 10 arguments; a digit otherwise. MED is the
median, cut to a whole number, SM the sum modulo 10. Its length counts each operator and its closing bracket, and must
lie strictly between bounds.

Trees grow level by level, all at once: arrays instead of 100,000 recursions. Every level knows which node of the one
above each of its nodes belongs to; children of a node stand side by side.
"""

import gzip
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longwave.data.examples import Examples, ragged
from longwave.errors import UserError

Ints = NDArray[np.int64]
OPERATOR = 0.25
MIN, MAX, MED, SM, CLOSE = range(10, 15)  # tokens behind the digits
WORDS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
VOCAB = len(WORDS)
FETCH = "lra_release.gz is at storage.googleapis.com/long-range-arena; unpack it and give its listops-1000"
SPLITS = {"train": ("train",), "valid": ("val", "valid", "dev"), "test": ("test",)}
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass
class Level:
    token: Ints  # a digit or an operator
    parent: Ints  # its place in the level above
    children: Ints  # how many, in the level below
    size: Ints  # tokens of the subtree


def expressions(
    random: np.random.Generator, roots: int, shortest: int, longest: int, depth: int, arguments: int
) -> tuple[list[NDArray[np.uint8]], Ints]:
    """Of so many trees those of a length strictly between `shortest` and `longest`: their tokens and values."""
    levels = _grow(random, roots, depth, arguments)
    for above, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
        above.size += np.bincount(below.parent, below.size, len(above.size)).astype(np.int64)
    kept = (levels[0].size > shortest) & (levels[0].size < longest)
    levels = _prune(levels, kept)
    return _write(levels), _values(levels)


def _grow(random: np.random.Generator, roots: int, depth: int, arguments: int) -> list[Level]:
    levels = []
    parent = np.zeros(roots, np.int64)
    for i in range(depth):
        count = len(parent)
        operator = (random.random(count) < OPERATOR) & (i < depth - 1)
        token = np.where(operator, random.integers(MIN, CLOSE, count), random.integers(10, size=count))
        children = np.where(operator, random.integers(2, arguments + 1, count), 0)
        levels.append(Level(token, parent, children, np.where(operator, 2, 1)))
        parent = np.repeat(np.arange(count), children)
        if not len(parent):
            break
    return levels


def _prune(levels: list[Level], kept: NDArray[np.bool_]) -> list[Level]:
    out = []
    for i, level in enumerate(levels):
        if i:
            new_place = np.cumsum(kept) - 1
            mine = kept[level.parent]
            parent = new_place[level.parent[mine]]
        else:
            mine, parent = kept, np.zeros(int(kept.sum()), np.int64)
        out.append(Level(level.token[mine], parent, level.children[mine], level.size[mine]))
        kept = mine
    return out


def _write(levels: list[Level]) -> list[NDArray[np.uint8]]:
    """Each tree's tokens in order: a node stands behind its parent and the siblings before it."""
    starts = np.concatenate([[0], np.cumsum(levels[0].size)])
    text = np.zeros(starts[-1], np.uint8)
    place = starts[:-1]
    for i, level in enumerate(levels):
        if i:
            before = np.cumsum(level.size) - level.size  # of all nodes of the level
            first = np.searchsorted(level.parent, level.parent)
            place = place[level.parent] + 1 + before - before[first]
        text[place] = level.token
        inner = level.token >= MIN
        text[(place + level.size - 1)[inner]] = CLOSE
    return np.split(text, starts[1:-1]) if len(starts) > 1 else []


def _values(levels: list[Level]) -> Ints:
    value = levels[-1].token
    for above in levels[-2::-1]:
        inner = above.token >= MIN
        count = above.children[inner]
        table = np.full((len(count), max(1, count.max(initial=1))), 99)
        starts = np.cumsum(count) - count
        table[np.repeat(np.arange(len(count)), count), np.arange(len(value)) - np.repeat(starts, count)] = value
        table.sort(1)  # what is not there comes last
        every = np.arange(len(count))
        total = np.where(table == 99, 0, table).sum(1)
        median = (table[every, (count - 1) // 2] + table[every, count // 2]) // 2
        answers = np.stack([table[:, 0], table[every, count - 1], median, total % 10])
        value, new = above.token.copy(), answers[above.token[inner] - MIN, every]
        value[inner] = new
    return value


def read(where: str) -> list[Examples]:
    """basic_train.tsv, basic_val.tsv and basic_test.tsv of a folder, of training, validation and test; or
    NAME.train.tsv(.gz) and so on, where the folder's path ends in NAME."""
    folder = Path(where).expanduser()
    folder, prefix = (folder, "") if folder.is_dir() else (folder.parent, folder.name)
    found = []
    for names in SPLITS.values():
        files = sorted(
            f for f in folder.glob(f"{prefix}*.tsv*") if set(names) & set(f.name.replace("_", ".").split("."))
        )
        if len(files) != 1:
            several = (
                f"several: {', '.join(file.name for file in files)}; give {folder}/NAME" if files else f"none: {FETCH}"
            )
            raise UserError(f"of files *{names[0]}.tsv in {folder} there must be one, there are {several}")
        found.append(_read(files[0]))
    return found


def _read(file: Path) -> Examples:
    number = {word: i for i, word in enumerate(WORDS)}
    texts, values = [], []
    for line, cells in enumerate(_cells(file), 1):
        if line == 1 and cells[:2] == ["Source", "Target"]:
            continue
        digits = [cell.isdecimal() and len(cell) == 1 for cell in cells[:2]]
        if len(digits) != 2 or not any(digits):
            raise UserError(f"{file}, line {line}: not an expression and its value of one digit, with a tab between")
        text, value = (cells[0], cells[1]) if digits[1] else (cells[1], cells[0])
        words = (
            text.replace("(", " ").replace(")", " ").split()
        )  # brackets around every step of the grammar say nothing
        unknown = next((word for word in words if word not in number), None)
        if unknown is not None or not words:
            raise UserError(f"{file}, line {line}: {unknown or 'nothing'!r} is no word of ListOps: {' '.join(WORDS)}")
        texts.append(np.array([number[word] for word in words], np.uint8))
        values.append(int(value))
    if not texts:
        raise UserError(f"{file} is empty")
    return ragged(texts, np.array(values, np.int64))


def _cells(file: Path) -> Iterator[list[str]]:
    try:
        with OPENERS.get(file.suffix, open)(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield line.rstrip("\n").split("\t")
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise UserError(f"cannot read {file}: {problem}") from problem
