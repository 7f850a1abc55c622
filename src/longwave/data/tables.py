"""Tables from CSV (also .gz) and Parquet files: columns of numbers or of words, and what is wrong with a cell.

A column is of numbers where its first filled cell is one. Cells such as "", NA, nan or ? are missing.
"""

import csv
import gzip
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longwave.errors import UserError, nearest

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
BLOCK = 1 << 16  # rows converted at once
DELIMITERS = ",;\t|"
Floats = NDArray[np.float64]


@dataclass
class Columns:
    """A table: numbers as float64, where NaN is missing; words as strings, where "" is."""

    source: str
    cells: dict[str, NDArray[Any]]
    lines: NDArray[np.int64]  # where each row stands in the file

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.cells:
            raise UserError(f"{self.source} has no column {name!r}: {nearest(name, self.cells)}")
        return self.cells[name]

    def is_number(self, name: str) -> bool:
        return self.column(name).dtype == np.float64

    def numbers(self, name: str) -> Floats:
        """As numbers, from words too; the first cell that is none is an error."""
        found = self.column(name)
        return found if self.is_number(name) else self._each(name, found, _number, "a number")

    def moments(self, name: str) -> Floats:
        """Points in time: numbers, or dates as seconds."""
        found = self.column(name)
        times = found if self.is_number(name) else self._each(name, found, _seconds, "a number or a date such as "
                                                                                     "2024-12-31 18:30:00")  # fmt: skip
        absent = np.flatnonzero(np.isnan(times))
        if len(absent):
            raise self.wrong(absent[0], name, "there is no time")
        return times

    def wrong(self, row: int, name: str, what: str) -> UserError:
        return UserError(f"{self.source}, line {self.lines[row]}, column {name!r}: {what}")

    def _each(self, name: str, words: NDArray[Any], read: Callable[[str], float], wanted: str) -> Floats:
        kinds, first, place = np.unique(words, return_index=True, return_inverse=True)
        values = np.full(len(kinds), np.nan)
        for i in np.argsort(first).tolist():
            if word := str(kinds[i]):
                try:
                    values[i] = read(word)
                except ValueError:
                    raise self.wrong(int(first[i]), name, f"{word!r} is not {wanted}") from None
        return values[place]


def read_table(where: str, words: Collection[str] = ()) -> Columns:
    """A .csv, .tsv, .txt (.gz too) or .parquet file. Columns named in `words` are not taken for numbers."""
    path = Path(where).expanduser()
    try:
        if path.suffix in (".parquet", ".pq"):
            return _parquet(path, words)
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") if path.suffix == ".gz" else \
                path.open(encoding="utf-8-sig", newline="") as lines:  # fmt: skip
            return _csv(str(path), lines, words)
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not text in UTF-8 ({problem.reason}): save it as CSV in UTF-8") from problem
    except (OSError, EOFError) as problem:
        raise UserError(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}") from problem


def _csv(source: str, lines: Iterable[str], words: Collection[str]) -> Columns:
    csv.field_size_limit(sys.maxsize)
    lines = iter(lines)
    first = next(lines, "")
    if not first.strip():
        raise UserError(f"{source} is empty: its first line must name the columns")
    delimiter = max(DELIMITERS, key=first.count)
    names = [name.strip() or f"column {i}" for i, name in enumerate(next(csv.reader([first], delimiter=delimiter)), 1)]
    if all(_is_number(name) for name in names):
        raise UserError(f"{source}: the first line must name the columns, this one is numbers: {first.strip()[:60]}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{source} has two columns {twice!r}")
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    kinds: dict[str, type] = dict.fromkeys(set(words) & set(names), str)
    places = []
    rows = _rows(source, csv.reader(lines, delimiter=delimiter), len(names))
    while block := list(islice(rows, BLOCK)):
        where, cells = zip(*block, strict=True)
        places.append(np.array(where, np.int64))
        for name, column in zip(names, zip(*cells, strict=True), strict=True):
            parts[name].append(_block(source, name, column, where, kinds))
    if not places:
        raise UserError(f"{source} has a line of names and no rows")
    found = {}
    for name, blocks in parts.items():
        if kinds.get(name) is str:  # a block that was all missing before the first word
            blocks = [np.full(len(b), "") if b.dtype == np.float64 else b for b in blocks]
        found[name] = np.concatenate(blocks)
    return Columns(source, found, np.concatenate(places))


def _rows(source: str, reader: Any, width: int) -> Iterator[tuple[int, Sequence[str]]]:
    try:
        for row in reader:
            if len(row) != width and any(row):
                raise UserError(f"{source}, line {reader.line_num + 1}: {len(row)} cells, the first line names {width}")
            if any(row):
                yield reader.line_num + 1, row
    except csv.Error as problem:
        raise UserError(f"{source}, line {reader.line_num + 1}: {problem}") from problem


def _block(source: str, name: str, column: Sequence[str], lines: Sequence[int], kinds: dict[str, type]) -> NDArray[Any]:
    if name not in kinds:
        first = next((cell for cell in column if cell.strip().lower() not in MISSING), None)
        if first is None:
            return np.full(len(column), np.nan)
        kinds[name] = float if _is_number(first) else str
    if kinds[name] is str:
        return np.array(["" if (cell := c.strip()).lower() in MISSING else cell for c in column])
    try:
        found = np.array(column, np.float64)
        if np.isfinite(found).all():
            return found
    except ValueError:
        pass  # something is missing, or wrong: one by one
    found = np.full(len(column), np.nan)
    for i, cell in enumerate(column):
        if cell.strip().lower() not in MISSING:
            try:
                found[i] = _number(cell)
            except ValueError:
                raise UserError(f"{source}, line {lines[i]}, column {name!r}: {cell!r} is not a number") from None
    return found


def _parquet(path: Path, words: Collection[str]) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise UserError("Parquet files need: pip install 'longwave[tables]'") from missing
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as problem:
        raise UserError(f"{path} is not a Parquet file: {problem}") from problem
    if not len(table):
        raise UserError(f"{path} has no rows")
    found: dict[str, NDArray[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        plain = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        if plain and name not in words:
            found[name] = column.cast(pa.float64()).to_numpy().astype(np.float64)
        else:
            found[name] = np.array(["" if cell is None else str(cell) for cell in column.to_pylist()])
    return Columns(str(path), found, np.arange(1, len(table) + 1))


def _number(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(cell)
    return value


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _seconds(cell: str) -> float:
    return float(_number(cell)) if _is_number(cell) else float(np.datetime64(cell, "us").astype(np.int64)) / 1e6


def made() -> Columns:
    """A table made here: 240 waves of 40 samples at irregular times, of two shapes and of many periods."""
    random = np.random.default_rng(0)
    count, steps = 240, 40
    period, square = random.uniform(6, 16, count), random.integers(2, size=count)
    time = np.cumsum(random.uniform(0.5, 1.5, (count, steps)), 1)
    wave = np.sin(2 * np.pi * (time / period[:, None] + random.random((count, 1))))
    value = np.where(square[:, None], np.sign(wave), wave) + 0.1 * random.normal(size=(count, steps))
    cells = {
        "id": np.repeat(np.arange(count), steps).astype(str),
        "time": time.ravel(),
        "value": value.ravel(),
        "period": np.repeat(period, steps),
        "shape": np.repeat(np.where(square, "square", "sine"), steps),
    }
    return Columns("a table made here, none of yours (--data has one)", cells, np.arange(2, count * steps + 2))
