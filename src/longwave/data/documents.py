"""Pairs of documents and whether they belong together: the tables of the Long Range Arena, or documents made here."""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longwave.errors import UserError

FETCH = "lra_release.gz is at storage.googleapis.com/long-range-arena; unpack it and give its tsv_data"
SPLITS = ("train", "eval", "test")
TOPICS, WORDS, COMMON = 8, 12, 200  # words of a topic, and of all topics
Pair = tuple[bytes, bytes, int]


def read(where: str, longest: int) -> list[list[Pair]]:
    """new_aan_pairs.train.tsv, .eval.tsv and .test.tsv of a folder: label, two names, two texts; of each the first
    `longest` bytes."""
    folder = Path(where).expanduser()
    files = [folder / f"new_aan_pairs.{split}.tsv" for split in SPLITS]
    for file in files:
        if not file.is_file():
            raise UserError(f"there is no {file}: {FETCH}")
    found = [list(_rows(file, longest)) for file in files]
    for file, pairs in zip(files, found, strict=True):
        if not pairs:
            raise UserError(f"{file} is empty")
    return found


def _rows(file: Path, longest: int) -> Iterator[Pair]:
    csv.field_size_limit(sys.maxsize)
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines, delimiter="\t")
        for row in reader:
            if len(row) != 5:
                raise UserError(f"{file}, line {reader.line_num}: {len(row)} cells, not label, two names, two texts")
            if row[0] not in ("0", "1", "0.0", "1.0"):
                raise UserError(f"{file}, line {reader.line_num}: the label is {row[0][:20]!r}, not 0 or 1")
            yield row[3].encode()[:longest], row[4].encode()[:longest], int(row[0][0])


def made(count: int, longest: int, seed: int) -> list[Pair]:
    """Documents of about half or all of `longest` bytes, of one topic or of two: a third of their words tell which."""
    words = np.random.default_rng(0).integers(97, 123, (TOPICS * WORDS + COMMON, 5), np.uint8)
    words[:, 4] = 32
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        first = int(random.integers(TOPICS))
        second = first if i % 2 else int((first + random.integers(1, TOPICS)) % TOPICS)
        texts = []
        for topic in (first, second):
            size = int(random.integers(longest // 2, longest + 1)) // 5 + 1
            of_topic = topic * WORDS + random.integers(WORDS, size=size)
            common = TOPICS * WORDS + random.integers(COMMON, size=size)
            texts.append(words[np.where(random.random(size) < 1 / 3, of_topic, common)].tobytes()[:longest])
        found.append((texts[0], texts[1], i % 2))
    return found
