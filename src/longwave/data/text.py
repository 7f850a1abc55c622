"""Text as one long array of bytes, whatever files it comes from; files are mapped, not read.

Bytes are the tokens. Byte 0 never occurs in text: it stands between documents, and for the beginning of one.
"""

import glob
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longwave.errors import UserError

END = 0  # between documents
LOOK = 1 << 20  # bytes looked at to tell text from binary


class Text:
    """Documents one after another, with END after each; `text[a:b]` is an array of bytes."""

    def __init__(self, documents: Sequence[NDArray[np.uint8]]) -> None:
        self.documents = list(documents)
        self.starts = np.cumsum([0, *(len(d) + 1 for d in self.documents)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, span: slice) -> NDArray[np.uint8]:
        start, stop, _ = span.indices(len(self))
        found = np.full(max(0, stop - start), END, dtype=np.uint8)
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for i in range(first, len(self.documents)):
            at = int(self.starts[i])
            if at >= stop:
                break
            a, b = max(start, at), min(stop, at + len(self.documents[i]))
            if a < b:
                found[a - start : b - start] = self.documents[i][a - at : b - at]
        return found

    def part(self, start: int, stop: int) -> "Text":
        """The text from byte `start` to `stop`, still mapped."""
        parts = []
        for document, at in zip(self.documents, self.starts[:-1].tolist(), strict=True):
            a, b = max(0, start - at), min(len(document), stop - at)
            if a < b:
                parts.append(document[a:b])
        return Text(parts)

    def split(self, share: float = 0.05, at_most: int = 1 << 19) -> "tuple[Text, Text, Text]":
        """For training; for validation the last `share`, of at most so many bytes; for test as much before it."""
        held = min(int(len(self) * share), at_most)
        a, b = len(self) - 2 * held, len(self) - held
        return self.part(0, a), self.part(b, len(self)), self.part(a, b)


def read_text(where: str) -> Text:
    """The text of a file, of all files below a folder, or of all that match a glob, in the order of their paths."""
    path = Path(where).expanduser()
    try:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if os.path.isfile(p))
    except OSError as problem:  # a folder on the way that may not be entered
        raise _unreadable(path, problem) from problem
    if not files or not where:
        raise UserError(f"no text at {where!r}: give a file, a folder, or a pattern such as 'notes/**/*.md'")
    text = Text([document for file in files if len(document := _map(file))])
    if len(text) == 0:
        raise UserError(f"{where} is empty")
    return text


def _hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)


def _unreadable(path: Path, problem: OSError) -> UserError:
    return UserError(f"cannot read {path}: {os.strerror(problem.errno or 0).lower()}")


def _map(file: Path) -> NDArray[np.uint8]:
    try:
        if file.stat().st_size == 0:
            return np.zeros(0, np.uint8)
        with file.open("rb") as opened:
            held = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(held, "madvise"):
            held.madvise(mmap.MADV_RANDOM)  # windows lie anywhere: reading ahead would fill memory with the rest
        mapped = np.frombuffer(held, np.uint8)
    except OSError as problem:
        raise _unreadable(file, problem) from problem
    zeros = np.flatnonzero(mapped[:LOOK] == END)
    if len(zeros):
        raise UserError(f"{file} is binary, not text: byte {zeros[0]} is zero")
    return mapped
