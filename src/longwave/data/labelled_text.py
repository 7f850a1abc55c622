"""Texts with a class each: a folder a class, IMDB's reviews, or the docstrings of Python's own library."""

import ast
import csv
import lzma
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longwave.data.examples import Examples, ragged
from longwave.errors import UserError

FETCH = "aclImdb_v1.tar.gz is at ai.stanford.edu/~amaas/data/sentiment; unpack it"
PACKAGES = ("asyncio", "collections", "ctypes", "email", "http", "importlib", "logging", "multiprocessing", "unittest",
            "xml")  # fmt: skip
SHORTEST = 40  # bytes of a docstring
Labelled = tuple[Examples, Examples, tuple[str, ...]]  # for training, for test, the names of the classes


def read(where: str, longest: int) -> Labelled:
    """From a folder with train/CLASS/*.txt and test/CLASS/*.txt, or with imdb_train.tsv.xz and imdb_test.tsv.xz; of
    each text the first `longest` bytes."""
    folder = Path(where).expanduser()
    tables = [folder / f"imdb_{part}.tsv.xz" for part in ("train", "test")]
    if all(file.is_file() for file in tables):
        train, test = ([(label, text.encode()[:longest]) for label, text in _table(file)] for file in tables)
    else:
        train, test = (list(_folders(folder / part, longest)) for part in ("train", "test"))
    names = tuple(sorted({label for label, _ in train}))
    if len(names) < 2:
        raise UserError(f"{folder} holds texts of {len(names)} classes in train/CLASS/*.txt; there must be 2. "
                        f"For IMDB: {FETCH}")  # fmt: skip
    unknown = {label for label, _ in test} - set(names)
    if unknown or not test:
        raise UserError(f"{folder}/test must hold texts of the classes {', '.join(names)}, like train; it has "
                        f"{', '.join(sorted(unknown)) or 'none'}")  # fmt: skip
    return _examples(train, names), _examples(test, names), names


def docstrings(longest: int) -> Labelled:
    """Which package of the standard library a docstring is from."""
    root = Path(sysconfig.get_paths()["stdlib"])
    every = [(name, text.encode()[:longest]) for name in PACKAGES for text in _docstrings(root / name)]
    every = sorted(set(every))
    order = np.random.default_rng(0).permutation(len(every))
    cut = len(every) // 5
    test, train = ([every[i] for i in part] for part in (order[:cut], order[cut:]))
    names = tuple(sorted({name for name, _ in train}))
    return _examples(train, names), _examples(test, names), names


def _table(file: Path) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(sys.maxsize)
    try:
        with lzma.open(file, "rt", encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
                if len(row) != 3:
                    raise UserError(f"{file}, line {number}: {len(row)} columns, not label, rating, text")
                yield row[0], row[2]
    except (lzma.LZMAError, EOFError, OSError) as problem:
        raise UserError(f"cannot read {file}: {problem}") from problem


def _folders(folder: Path, longest: int) -> Iterator[tuple[str, bytes]]:
    for each in sorted(folder.glob("*")):
        if each.is_dir() and each.name != "unsup":  # IMDB's texts without a class
            for file in sorted(each.glob("*.txt")):
                with file.open("rb") as opened:
                    yield each.name, opened.read(longest)


def _examples(pairs: list[tuple[str, bytes]], names: tuple[str, ...]) -> Examples:
    number = {name: i for i, name in enumerate(names)}
    rows = [np.frombuffer(text or b" ", np.uint8) for _, text in pairs]
    return ragged(rows, np.array([number[label] for label, _ in pairs], np.int64))


def _docstrings(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        if "test" in file.relative_to(folder).parts or "tests" in file.relative_to(folder).parts:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) >= SHORTEST:
                    yield text
