"""Checkpoints of other programs, opened without running anything in them; a tensor is read when it is asked for.

Known by what is there: safetensors or torch pickles (whole or in shards, with `weights_only`), beside a config.json; or
a single .pth or .pt, whose sizes are those of its tensors, or lie beside them.
"""

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longwave.errors import UserError, nearest
from longwave.models.weights.config import read_config

WHOLE = ("model.safetensors", "pytorch_model.bin")
INDEX = tuple(f"{name}.index.json" for name in WHOLE)
PICKLES = (".pth", ".pt", ".bin")


@dataclass
class Entry:
    shape: tuple[int, ...]
    load: Callable[[], Tensor]
    file: Path


@dataclass
class Source:
    path: Path
    config: dict[str, Any] | None  # None: there is none
    entries: dict[str, Entry] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)  # that lie beside the tensors in one file

    def get(self, name: str) -> Tensor:
        """A tensor in float32, or a counter. One that is not of finite numbers is an error."""
        entry = self.entries[name]
        try:
            t = entry.load()
        except (SafetensorError, RuntimeError, ValueError, OSError) as problem:
            raise UserError(f"{entry.file} is damaged: cannot read the tensor {name!r}") from problem
        if t.dtype == torch.long and t.ndim == 0:  # a counter, of batch norm
            return t
        if t.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            raise UserError(f"{entry.file}: tensor {name!r} is of {t.dtype}, not of plain numbers")
        if not t.isfinite().all():
            raise UserError(f"{entry.file}: tensor {name!r} holds NaN or infinity")
        return t.float()

    def matrix(self, name: str) -> tuple[int, int]:
        """The sizes of one that must be there."""
        shape = self.entries[name].shape if name in self.entries else ()
        if len(shape) != 2:
            raise UserError(f"{self.path} lacks the matrix {name!r}")
        return shape[0], shape[1]

    def rename(self, change: Callable[[str], str]) -> None:
        renamed = {change(name): entry for name, entry in self.entries.items()}
        if len(renamed) < len(self.entries):
            raise UserError(f"{self.path} is damaged: two of its tensors have the same name")
        self.entries = renamed


def open_source(path: Path) -> Source:
    """What is in a folder or a file."""
    if path.is_file():
        if path.suffix in PICKLES:
            return Source(path, None, *_open_pickle(path))
        raise UserError(f"{path} is no checkpoint: that is a folder with a config.json, or a file {', '.join(PICKLES)}")
    if not path.is_dir():
        raise UserError(f"no model at {path}: there is no such file or folder")
    if not (path / "config.json").is_file():
        raise UserError(f"no model in {path}: there is no config.json")
    source = Source(path, read_config(path / "config.json"))
    for file in _files(path):
        opened = _open_pickle(file)[0] if file.suffix in PICKLES else _open_safetensors(file)
        twice = source.entries.keys() & opened
        if twice:
            raise UserError(f"{path}: the tensor {min(twice)!r} is in two files")
        source.entries.update(opened)
    return source


def _files(folder: Path) -> list[Path]:
    for whole, index in zip(WHOLE, INDEX, strict=True):
        if (folder / whole).is_file():
            return [folder / whole]
        if (folder / index).is_file():
            places = read_config(folder / index).get("weight_map")
            if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
                raise UserError(f"{folder / index} is damaged: its 'weight_map' does not say where tensors are")
            names = sorted(set(places.values()))
            for name in names:
                if Path(name).name != name or not (folder / name).is_file():
                    raise UserError(f"{folder / index} names the file {name!r}, which is not in the folder")
            return [folder / name for name in names]
    raise UserError(f"no weights in {folder}: there is no {', '.join((*WHOLE, *INDEX))}")


def _open_safetensors(file: Path) -> dict[str, Entry]:
    try:
        opened = safe_open(file, framework="pt")
        names = list(opened.keys())
        shapes = [tuple(opened.get_slice(name).get_shape()) for name in names]
    except (SafetensorError, OSError) as problem:
        raise UserError(f"{file} is damaged or not a safetensors file ({str(problem).strip()})") from problem
    return {
        name: Entry(shape, functools.partial(opened.get_tensor, name), file)
        for name, shape in zip(names, shapes, strict=True)
    }


def _open_pickle(file: Path) -> tuple[dict[str, Entry], dict[str, Any]]:
    try:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the old format, or a damaged file
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        raise UserError(
            f"{file} is not opened: it holds more than tensors, or is damaged; nothing was run"
        ) from problem
    except Exception as problem:  # a damaged one fails anywhere in torch's reader
        raise UserError(f"{file} is damaged or not a torch file") from problem
    sizes = found.get("dims") if isinstance(found, dict) else None
    for name in ("state_dict", "model_state_dict"):
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) and isinstance(n, str) for n, t in found.items()):
        raise UserError(f"{file} is not a dictionary of tensors")
    entries = {name: Entry(tuple(t.shape), t.clone, file) for name, t in found.items()}
    return entries, sizes if isinstance(sizes, dict) else {}


def check_tensors(source: Source, wanted: dict[str, tuple[int, ...]]) -> None:
    """Every tensor that the model calls for is there in its shape, and there is no other."""
    missing = [name for name in wanted if name not in source.entries]
    unexpected = [name for name in source.entries if name not in wanted]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        near = nearest(missing[0], unexpected) if unexpected else "there is no other"
        raise UserError(f"{source.path} lacks the tensor {missing[0]!r}{more} that its sizes call for: {near}")
    if unexpected:
        more = f" and {len(unexpected) - 1} more" if len(unexpected) > 1 else ""
        raise UserError(f"{source.path} holds an unexpected tensor {unexpected[0]!r}{more}")
    for name, shape in wanted.items():
        found = source.entries[name].shape
        if found != shape:
            raise UserError(f"{source.entries[name].file}: tensor {name!r} has shape {list(found)}, "
                            f"its config calls for {list(shape)}")  # fmt: skip
