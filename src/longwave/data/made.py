"""Data that takes a while to make: made once, with a line of progress, and kept in the user's cache."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from longwave.data.examples import Examples, ragged
from longwave.files import write_whole

QUIET = 5.0  # seconds between lines of progress
SLOW = 2.0  # what took fewer seconds is not kept


def kept(name: str, count: int, make: Callable[[], Iterator[Examples]]) -> Examples:
    """`count` examples that `make` yields in pieces; those kept under this name where it has been made before."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "longwave"
    file = folder / f"{name}.npz"
    if file.is_file():
        with np.load(file, allow_pickle=False) as held:
            return Examples(held["x"], held["y"], held.get("starts"))
    began = spoken = time.monotonic()
    pieces: list[Examples] = []
    done = 0
    for piece in make():
        pieces.append(piece)
        done += len(piece)
        if time.monotonic() - spoken > QUIET:
            spoken = time.monotonic()
            left = (spoken - began) / done * max(0, count - done)
            sys.stderr.write(f"making {name}: {done:,} of {count:,}, {left:.0f} s left\n")
        if done >= count:
            break
    found = _joined(pieces).take(np.arange(count))
    if time.monotonic() - began > SLOW:
        arrays = {"x": found.x, "y": found.y, **({} if found.starts is None else {"starts": found.starts})}
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda path: _save(path, arrays))
    return found


def _joined(pieces: list[Examples]) -> Examples:
    y = np.concatenate([piece.y for piece in pieces])
    if pieces[0].starts is None:
        return Examples(np.concatenate([piece.x for piece in pieces]), y)
    return ragged([row for piece in pieces for row in piece.rows(np.arange(len(piece)))], y)


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:  # np.savez would add a suffix to a name
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
