"""The corpus that is always there: the source of the Python standard library.

Tests and idlelib are left out, and files that differ from one build of Python to another. Order and split depend on
the paths alone, so the same Python version gives the same bytes.
"""

import os
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longwave.data.text import Text

LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__", "lib-dynload"}
BUILT = ("_sysconfigdata", "config-", "sitecustomize", "_distutils_system_mod")
HELD_OUT = 20  # one file in so many is for validation, another one for test


def standard_library() -> tuple[Text, Text, Text]:
    """Text for training, for validation and for test."""
    root = Path(sysconfig.get_paths()["stdlib"])
    kept = [Path(folder, name).relative_to(root) for folder, name in _sources(root)]
    order = {file: zlib.crc32(file.as_posix().encode()) for file in kept}
    kept.sort(key=lambda file: (order[file], file.as_posix()))
    train = [file for file in kept if order[file] % HELD_OUT > 1]
    valid, test = ([file for file in kept if order[file] % HELD_OUT == i] for i in range(2))
    return _read(root, train), _read(root, valid), _read(root, test)


def _sources(root: Path) -> Iterator[tuple[str, str]]:
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT and not name.startswith(BUILT)]
        yield from ((folder, name) for name in files if name.endswith(".py") and not name.startswith(BUILT))


def _read(root: Path, files: list[Path]) -> Text:
    documents = (np.frombuffer((root / file).read_bytes(), np.uint8) for file in files)
    return Text([d for d in documents if len(d) and not (d == 0).any()])
