"""Sentences beside their translations: two text files a part, line by line, as Multi30k and the WMT sets come.

A folder holds `train.en` and `train.de`, `val.en` and `val.de`, and any number of tests, `test*.en` and `test*.de`;
each may be packed (.gz). Without a folder there are numbers written out in English and German, which have no end.
"""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longwave.data.loader import shuffled
from longwave.errors import UserError, nearest

VALID = ("val", "valid", "validation", "dev")
HELD_OUT = 1000  # pairs of a validation that is cut from the training text, at most
NUMBERS = {"train": 4000, "val": 200, "test": 200}

ONES = (("zero", "null"), ("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"),
        ("six", "sechs"), ("seven", "sieben"), ("eight", "acht"), ("nine", "neun"), ("ten", "zehn"), ("eleven", "elf"),
        ("twelve", "zwölf"), ("thirteen", "dreizehn"), ("fourteen", "vierzehn"), ("fifteen", "fünfzehn"),
        ("sixteen", "sechzehn"), ("seventeen", "siebzehn"), ("eighteen", "achtzehn"),
        ("nineteen", "neunzehn"))  # fmt: skip
TENS = (("twenty", "zwanzig"), ("thirty", "dreißig"), ("forty", "vierzig"), ("fifty", "fünfzig"), ("sixty", "sechzig"),
        ("seventy", "siebzig"), ("eighty", "achtzig"), ("ninety", "neunzig"))  # fmt: skip


@dataclass(frozen=True)
class Pairs:
    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def mark(self) -> int:
        """A checksum."""
        return zlib.crc32("\n".join([*self.source, *self.target]).encode())


def read_pairs(folder: str | None, source: str, target: str) -> dict[str, Pairs]:
    """The parts "train" and "val", then the tests by the names of their files."""
    if folder is None:
        return numbers(source, target)
    where = Path(folder).expanduser()
    files = {n.removesuffix(".gz"): where / n for n in sorted(p.name for p in where.glob("*") if p.is_file())}
    names = [name.removesuffix(f".{source}") for name in files if name.endswith(f".{source}")]
    parts = {name: _pair(files, name, source, target) for name in names if f"{name}.{target}" in files}
    if "train" not in parts:
        others = [name for name in files if name.startswith("train.")]
        instead = f"; {nearest(f'train.{target}', others)}" if others else ""
        raise UserError(f"no train.{source} and train.{target} in {folder}: translations are two files of as many "
                        f"lines, as Multi30k has them (multi30k/dataset, data/task1/raw){instead}")  # fmt: skip
    valid = next((name for name in VALID if name in parts), None)
    train = parts["train"]
    if valid is None:
        cut = len(train) - max(1, min(HELD_OUT, len(train) // 20))
        train, held_out = (Pairs(train.source[part], train.target[part]) for part in (slice(cut), slice(cut, None)))
    else:
        held_out = parts[valid]
    tests = {name: parts[name] for name in parts if name.startswith("test")}
    return {"train": train, "val": held_out, **tests}


def numbers(source: str = "en", target: str = "de") -> dict[str, Pairs]:
    """Numbers below a million, written out; the tens follow the ones in German."""
    if {source, target} != {"en", "de"}:
        raise UserError(f"the built-in numbers are in en and de, not {source} and {target}: --data FOLDER has others")
    drawn = np.unique((10 ** np.random.default_rng(0).uniform(0, 6, 3 * sum(NUMBERS.values()))).astype(np.int64))
    drawn = np.random.default_rng(1).permutation(drawn).tolist()
    parts, start = {}, 0
    for name, count in NUMBERS.items():
        said = {"en": list(map(english, drawn[start : start + count])),
                "de": list(map(german, drawn[start : start + count]))}  # fmt: skip
        parts[name], start = Pairs(said[source], said[target]), start + count
    return parts


def english(n: int) -> str:
    if n < 20:
        return ONES[n][0]
    if n < 100:
        return TENS[n // 10 - 2][0] + (f"-{ONES[n % 10][0]}" if n % 10 else "")
    if n < 1000:
        return f"{ONES[n // 100][0]} hundred" + (f" and {english(n % 100)}" if n % 100 else "")
    return f"{english(n // 1000)} thousand" + (f" {english(n % 1000)}" if n % 1000 else "")


def german(n: int, alone: bool = True) -> str:
    """`alone`: nothing follows, so that one is "eins" and not "ein"."""
    if n < 20:
        return "ein" if n == 1 and not alone else ONES[n][1]
    if n < 100:
        return (f"{german(n % 10, False)}und" if n % 10 else "") + TENS[n // 10 - 2][1]
    if n < 1000:
        return f"{german(n // 100, False)}hundert" + (german(n % 100) if n % 100 else "")
    return f"{german(n // 1000, False)}tausend" + (german(n % 1000) if n % 1000 else "")


def continuations(source: Sequence[Any], target: Sequence[Any], start: Any, end: Any) -> list[tuple[list[Any], Any]]:
    """A pair as next-token prediction: all that can be read before each token of the target, and that token."""
    return [([*source, start, *target[:i]], token) for i, token in enumerate([*target, end])]


class Buckets:
    """Batches of rows of about one length, at most `budget` tokens each with their pads: a function of the step."""

    def __init__(self, lengths: Sequence[int] | NDArray[np.int64], budget: int, seed: int) -> None:
        self.lengths, self.seed = np.asarray(lengths), seed
        cuts = [0]
        for i, longest in enumerate(np.sort(self.lengths).tolist()):
            if (i + 1 - cuts[-1]) * longest > budget and i > cuts[-1]:
                cuts.append(i)
        self.cuts = [*cuts, len(self.lengths)]

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.cuts) - 1

    def at(self, step: int) -> NDArray[np.int64]:
        """The rows of a step: rows of one length in another order every epoch, so with others in their batch."""
        epoch, place = divmod(step, len(self))
        some = int(shuffled(np.array([place]), len(self), (self.seed, epoch))[0])
        return self._order(epoch)[self.cuts[some] : self.cuts[some + 1]]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        mixed = np.random.default_rng((self.seed, epoch)).permutation(len(self.lengths))
        return mixed[np.argsort(self.lengths[mixed], kind="stable")]


def _pair(files: dict[str, Path], name: str, source: str, target: str) -> Pairs:
    pair = Pairs(*(_lines(files[f"{name}.{language}"]) for language in (source, target)))
    if len(pair.source) != len(pair.target):
        raise UserError(f"{files[f'{name}.{source}']} has {len(pair.source)} lines, {files[f'{name}.{target}'].name} "
                        f"{len(pair.target)}: line by line they must be translations")  # fmt: skip
    if not len(pair):
        raise UserError(f"{files[f'{name}.{source}']} is empty")
    return pair


def _lines(file: Path) -> list[str]:
    try:
        packed = file.read_bytes()
        text = (gzip.decompress(packed) if file.suffix == ".gz" else packed).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        raise UserError(f"cannot read {file}: it is not UTF-8 text, or damaged ({problem})") from problem
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
