"""GLUE's nine tasks as published: a folder each, with train.tsv and dev.tsv, cells between tabs, no quotes."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from longwave.errors import UserError, choose, nearest

FETCH = "gluebenchmark.com/tasks has them, one archive a task; unpack them side by side"
Name = Literal["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"]


@dataclass(frozen=True)
class Part:
    folder: str
    text: tuple[str, ...]  # columns of the one sentence or the two
    label: str
    classes: tuple[str, ...] = ("0", "1")  # none: a score from 0 to 5
    metrics: tuple[str, ...] = ("accuracy",)  # the first ranks models
    tests: tuple[str, ...] = ("dev",)  # GLUE keeps the answers of its test sets to itself


ENTAILS = ("entailment", "not_entailment")
PARTS: dict[str, Part] = {
    "cola": Part("CoLA", ("sentence",), "label", metrics=("matthews", "accuracy")),
    "sst2": Part("SST-2", ("sentence",), "label"),
    "mrpc": Part("MRPC", ("#1 String", "#2 String"), "Quality", metrics=("f1", "accuracy")),
    "qqp": Part("QQP", ("question1", "question2"), "is_duplicate", metrics=("f1", "accuracy")),
    "stsb": Part("STS-B", ("sentence1", "sentence2"), "score", (), ("spearman", "pearson")),
    "mnli": Part("MNLI", ("sentence1", "sentence2"), "gold_label", ("entailment", "neutral", "contradiction"),
                 tests=("dev_matched", "dev_mismatched")),
    "qnli": Part("QNLI", ("question", "sentence"), "label", ENTAILS),
    "rte": Part("RTE", ("sentence1", "sentence2"), "label", ENTAILS),
    "wnli": Part("WNLI", ("sentence1", "sentence2"), "label"),
}  # fmt: skip
HEADLESS = {"cola": ["source", "label", "star", "sentence"]}  # files without a line of names

Rows = list[tuple[tuple[str, ...], float]]  # sentences, and a class or a score


def read(where: str, name: str) -> tuple[Rows, list[Rows]]:
    """Of a part: for training, and what it is tested on. `where` is GLUE's folder, or that of the part."""
    part = choose("part of GLUE", name, PARTS)
    folder = Path(where).expanduser()
    inner = folder / part.folder
    home = inner if inner.is_dir() else folder
    files = [home / f"{split}.tsv" for split in ("train", *part.tests)]
    absent = [str(file) for file in files if not file.is_file()]
    if absent:
        raise UserError(f"there is no {absent[0]}: {FETCH}")
    train, *tests = (list(_rows(file, name, part)) for file in files)
    for file, rows in zip(files, (train, *tests), strict=True):
        if not rows:
            raise UserError(f"{file} is empty")
    return train, tests


def _rows(file: Path, name: str, part: Part) -> Iterator[tuple[tuple[str, ...], float]]:
    csv.field_size_limit(sys.maxsize)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = HEADLESS.get(name) or next(reader, [])
        for wanted in (*part.text, part.label):
            if wanted not in header:
                raise UserError(f"{file} has no column {wanted!r}: {nearest(wanted, header)}")
        texts, label = [header.index(each) for each in part.text], header.index(part.label)
        for row in reader:
            if part.classes and len(row) > label and row[label] == "-":
                continue  # MNLI's annotators did not agree
            try:
                yield tuple(row[i] for i in texts), _answer(row[label], part)
            except (ValueError, IndexError):
                said = row[label] if len(row) > label else "nothing"
                wanted = ", ".join(part.classes) or "a score from 0 to 5"
                raise UserError(f"{file}, line {reader.line_num}: {part.label} is {said!r}, not {wanted}") from None


def _answer(cell: str, part: Part) -> float:
    return float(part.classes.index(cell)) if part.classes else float(cell)


def made(name: str, count: int, seed: int) -> Rows:
    """A twin of a part: words of a sentence are good or bad; two sentences share few words or many."""
    part = choose("part of GLUE", name, PARTS)
    random = np.random.default_rng(seed)
    words = ["".join(chr(97 + c) for c in np.random.default_rng(i).integers(26, size=4)) for i in range(200)]
    found: Rows = []
    for _ in range(count):
        size = int(random.integers(5, 12))
        first = [words[i] for i in random.integers(200, size=size)]
        label = random.random() * 5 if not part.classes else float(random.integers(len(part.classes)))
        if len(part.text) == 1:
            for i in random.choice(size, 3, replace=False).tolist():
                first[i] = ("bad", "good")[int(label)]
            found.append(((" ".join(first),), label))
            continue
        share = label / 5 if not part.classes else label / (len(part.classes) - 1)
        same = random.random(size) < share
        second = [word if kept else "no" for word, kept in zip(first, same, strict=True)]
        score = 5 * float(same.mean()) if not part.classes else label
        found.append(((" ".join(first), " ".join(second)), score))
    return found
