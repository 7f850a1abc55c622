"""Files that are either whole or absent: written beside the target, flushed to disk, renamed over it.

Checkpoints and saved states are safetensors: tensors and a JSON header, nothing that could run.
"""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longwave.errors import RunError, UserError

FORMAT = "1"


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary neighbour of `path`, then move that over `path` in one step."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except (OSError, SafetensorError) as problem:
        raise RunError(f"cannot write {path}: {_reason(problem)}") from problem
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    header = {"longwave": FORMAT, **about}
    write_whole(path, lambda file: safetensors.torch.save_file(dict(tensors), file, metadata=header))


def read_header(path: str | Path, kind: str) -> dict[str, str]:
    """What `write_tensors` noted about the tensors; an error if this is not a file of ours, of this kind and format."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
    except (OSError, SafetensorError) as problem:
        raise UserError(f"cannot read {path}: {_reason(problem)}") from problem
    if "longwave" not in about:
        raise UserError(f"{path} was not written by longwave")
    if about["longwave"] != FORMAT:
        raise UserError(f"{path} has format {about['longwave']!r}; this version of longwave reads format {FORMAT!r}")
    if about.get("kind") != kind:
        raise UserError(f"{path} holds a {about.get('kind')}, not a {kind}")
    return about


def read_tensors(path: str | Path, kind: str, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors whose names begin with `prefix` (taken off), and the header."""
    about = read_header(path, kind)
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 - not a dict
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}, about
    except (OSError, SafetensorError) as problem:
        raise UserError(f"cannot read {path}: {_reason(problem)}") from problem


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.errno:
        return os.strerror(problem.errno).lower()
    text = str(problem)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # safetensors reports these as text
        if f"os error {number}" in text.lower():
            return os.strerror(number).lower()
    return f"it is damaged or not a safetensors file ({text.strip()})"
