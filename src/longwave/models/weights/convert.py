"""From a published checkpoint to one of our models, and back; both end with a report of what was compared."""

import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave import models
from longwave.errors import RunError, UserError, nearest
from longwave.files import write_whole
from longwave.models import store
from longwave.models.adapt import with_head
from longwave.models.model import Model
from longwave.models.step import check_exportable
from longwave.models.weights import beside, own
from longwave.models.weights.byte_tokenizer import write_bytes
from longwave.models.weights.config import Config
from longwave.models.weights.families import all_families
from longwave.models.weights.gguf import open_gguf, write_beside, write_gguf
from longwave.models.weights.hub import fetch
from longwave.models.weights.names import Absent, piece
from longwave.models.weights.onnx_file import CAPACITY, write_onnx
from longwave.models.weights.parity import difference, unlike
from longwave.models.weights.source import PICKLES, Source, check_tensors, open_source
from longwave.models.weights.whisper_tokenizer import has_tokenizer, write_tokenizer
from longwave.spec import Spec

FORMATS = ("hf", "safetensors", "gguf", "pth", "onnx")
BYTES = 256  # tokens of a model that has no tokenizer


class Unpublished(UserError):
    """No published family has this architecture."""


@dataclass(frozen=True)
class Report:
    family: str
    matched: int  # tensors of theirs; none was missing, none unexpected: either is an error
    difference: float | None  # the largest between logits of theirs and ours; None: not compared
    beside: str = "transformers"  # who the others are

    def __str__(self) -> str:
        far = "logits were not compared: transformers is not installed or has no such model"
        if self.difference is not None:
            far = f"logits differ from those of {self.beside} by at most {self.difference:.1e}"
        opens = "; it opens in transformers after `import longwave.hf`" if self.family in own.TYPES else ""
        return f"{self.family}: {self.matched} tensors matched, 0 missing, 0 unexpected; {far}{opens}"


def load(path: str | Path, head: Spec | None = None, *, language: float = 0.0) -> Model:
    """The model of a run, a folder or file of published weights, or a hub id such as "openai-community/gpt2"; in eval
    mode.

    With `head` it gets that one, untrained, in place of its own: Spec("classify", n_classes=2, pool="last"). `language`
    then weighs the loss of the next token, which is added to the head's.
    """
    found = fetch(path)
    model = store.load(found) if _ours(found) else read(found)[0]
    model.home = _home(found, model)
    return model if head is None else with_head(model, head, language=language)


def bring(path: str | Path, out: str | Path) -> Report:
    """Write published weights into the new folder `out`, as a model of our own with its tokenizer beside it."""
    found = fetch(path)
    if _ours(found):
        raise UserError(f"{found} is a model of longwave already")
    model, family, matched = read(found)
    home = _home(found, model)
    beside.check_tokenizer(home, model)
    with new_folder(out) as folder:
        store.save(model, folder)
        beside.copy(home, folder)
        beside.keep_ends(home, folder)
        return Report(family, matched, _compare(model, family))


def export(path: str | Path, out: str | Path, to: str = "hf", dtype: str = "f32", capacity: int = CAPACITY) -> Report:
    """Write a model of ours as a folder that transformers opens, as bare tensors under its published names, as GGUF, or
    as a graph of ONNX that reads tokens with a state (see `onnx_file`).

    Where no published family has its architecture, transformers opens it after `import longwave.hf`. `dtype` is that
    of the matrices in a GGUF file, `capacity` how many tokens the state of an ONNX graph has room for. The report
    compares with the model that was read back.
    """
    if to not in FORMATS:
        raise UserError(f"unknown format {to!r}: {nearest(to, FORMATS)}")
    found = fetch(path)
    model = load(found)
    if to in ("gguf", "pth"):
        return _export_file(model, out, to, dtype)
    with new_folder(out) as folder:
        _write_tokenizer(model, folder)
        if to == "onnx":
            gap = write_onnx(check_exportable(model), folder, capacity)
            return Report("onnx", len(model.state_dict()), gap, "onnxruntime")
        family, matched = write_hf(model, folder)
        report = Report(family, matched, difference(model, folder))
        if to == "safetensors":
            (folder / "config.json").unlink()
        return report


def _export_file(model: Model, out: str | Path, to: str, dtype: str) -> Report:
    values, tensors = published(model, only_of_transformers=to == "gguf")
    kind, home = values["model_type"], model.home
    if to == "pth" and not hasattr(_types()[kind], "PTH"):
        raise UserError(f"a .pth is what the authors of RWKV write, this is {kind}")
    with new_folder(out) as folder, tempfile.TemporaryDirectory() as again:
        file = folder / f"model.{to}"
        if to == "gguf":
            write_whole(file, lambda part: write_gguf(values, tensors, home or folder, part, dtype))
        else:
            rename = _renamer(_types()[kind].PTH)
            write_whole(file, lambda part: torch.save({rename(n): t for n, t in tensors.items()}, part))
            beside.copy(home or folder, folder)
        kind_again, _ = write_hf(read(file)[0], Path(again))
        return Report(kind, len(tensors), difference(model, Path(again)) if kind_again == kind else None)


def _home(found: Path, model: Model) -> Path:
    """The folder of the tokenizer; one made here, for what other files say, lives as long as the model."""
    home = found if found.is_dir() else found.parent
    authors = found.suffix in PICKLES and has_tokenizer(model)  # a .pt of Whisper's, nothing beside it
    if found.suffix != ".gguf" and not authors and not beside.only_merges(home):
        return home
    folder = Path(tempfile.mkdtemp(prefix="longwave"))
    weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
    if found.suffix == ".gguf":
        write_beside(found, folder)
    elif authors:
        write_tokenizer(len(model.embed.weight), folder)  # type: ignore[arg-type]
    else:
        beside.write_merges(home, folder)
    return folder


def read(path: Path) -> tuple[Model, str, int]:
    """The model, the name of its family, and how many tensors of theirs it was made of."""
    source = open_gguf(path) if path.suffix == ".gguf" else open_source(path)
    family, config = _recognise(source)
    spec = family.spec(config)
    config.done()
    model = _on_meta(spec, config.where)
    parts = {name: piece(part) for name, part in family.names(model).items()}
    empty = model.state_dict()
    wanted = _shapes(family, model)
    _tidy(source, family, wanted)
    check_tensors(source, wanted)
    made = {}
    for name, meta in empty.items():
        found = parts[name].read(source.get)
        made[name] = torch.zeros(meta.shape) if found is None else found.contiguous().clone()
    model.load_state_dict(made, assign=True)
    return model.eval(), config.values["model_type"], len(wanted)


def write_hf(model: Model, folder: Path) -> tuple[str, int]:
    """Write config.json and model.safetensors; the family's name, and how many tensors it has."""
    import safetensors.torch

    try:
        values, theirs = published(model)
    except Unpublished:
        values = own.config(model)
        theirs = {own.PREFIX + name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    text = json.dumps(values, indent=2) + "\n"
    write_whole(folder / "config.json", lambda file: file.write_text(text, encoding="utf-8"))
    write_whole(folder / "model.safetensors", lambda file: safetensors.torch.save_file(theirs, file, {"format": "pt"}))
    return values["model_type"], len(theirs)


def published(model: Model, only_of_transformers: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the tensors of a model as its family publishes them."""
    family, values = _family_of(model)
    if only_of_transformers and values["architectures"] == [None]:
        raise Unpublished(f"transformers has no {values['model_type']}")
    theirs: dict[str, Tensor] = {}
    parts = family.names(model)
    for name, ours in model.state_dict().items():
        described = piece(parts[name])
        written = list(described.write(ours.detach().cpu()))
        if isinstance(described, Absent) and bool(ours.any()):
            raise UserError(f"{values['model_type']} has no place for {name!r}, which is not zero")
        theirs.update({n: t.contiguous().clone() for n, t in written})
    return values, theirs


def _types() -> dict[str, Any]:
    return {kind: family for family in [*all_families(), own] for kind in family.TYPES}


def _ours(path: Path) -> bool:
    """Whether it is a model that longwave wrote; a damaged file of another kind is left to its own reader."""
    if path.is_dir():
        return not (path / "config.json").exists()
    return path.suffix == ".safetensors"


def _recognise(source: Source) -> tuple[Any, Config]:
    """The family, and the config as transformers would write it."""
    where = str(source.path if source.path.is_file() else source.path / "config.json")
    if source.config is None:
        by_mark = {family.MARK: family for family in all_families() if hasattr(family, "MARK")}
        family = next((by_mark[mark] for mark in by_mark if mark in source.entries), None)
        if family is None:
            marks = " and ".join(map(repr, by_mark))
            raise UserError(f"{source.path} is no checkpoint of RWKV or Whisper: it lacks the tensors {marks}")
        values = family.original(source)
        source.rename(_renamer(family.ORIGINAL))
        return family, Config(values, str(source.path))
    values = source.config
    if "model_type" not in values and "ssm_cfg" in values:
        layer = values["ssm_cfg"].get("layer", "Mamba1") if isinstance(values["ssm_cfg"], dict) else ""
        family = _types()["mamba2" if layer == "Mamba2" else "mamba"]
        source.rename(_renamer(family.ORIGINAL))
        return family, Config(family.original(values), where)
    kind, known = values.get("model_type"), _types()
    if not isinstance(kind, str) or kind not in known:
        raise UserError(
            f"{where}: longwave does not know the model type {str(kind)[:40]!r}: {nearest(str(kind), known)}"
        )
    source.rename(_renamer(getattr(known[kind], "ORIGINAL", {})))
    return known[kind], Config(values, where, {name: entry.shape for name, entry in source.entries.items()})


def _tidy(source: Source, family: Any, wanted: dict[str, Any]) -> None:
    """What old files hold beyond the weights: no prefix, buffers, tied tensors twice."""
    if not any(name.startswith(family.PREFIX) for name in source.entries):
        source.rename(lambda name: name if name == family.OUT else family.PREFIX + name)
    for name in [n for n in source.entries if n not in wanted]:
        if any(re.search(pattern, name) for pattern in getattr(family, "BUFFERS", ())):
            del source.entries[name]
    embedding = next(iter(wanted))  # our first tensor
    for again, first in {family.OUT: embedding, **getattr(family, "TIED", {})}.items():
        if again in source.entries and again not in wanted:
            if first not in source.entries:
                source.entries[first] = source.entries[again]
            elif not torch.equal(source.get(again), source.get(first)):
                raise UserError(f"{source.path}: {again!r} differs from {first!r}, its config says they are one")
            del source.entries[again]


def _renamer(patterns: dict[str, str]) -> Callable[[str], str]:
    def rename(name: str) -> str:
        for pattern, new in patterns.items():
            name = re.sub(pattern, new, name)
        return name

    return rename


def _on_meta(spec: Spec, where: str) -> Model:
    """The model without its memory: what sizes it calls for."""
    try:
        with torch.device("meta"):
            model = models.create(spec)
    except UserError as problem:
        raise UserError(f"{where}: {problem}") from problem
    except (RuntimeError, OverflowError, TypeError, ValueError) as problem:
        raise UserError(f"{where}: no model has these sizes ({str(problem).splitlines()[0]})") from problem
    return model


def _family_of(model: Model) -> tuple[Any, dict[str, Any]]:
    """The published family that this model is one of, and its config.json."""
    reasons = []
    for family in all_families():
        try:
            values = family.config(model)
            kind = values.setdefault("model_type", next(iter(family.TYPES)))
            config = Config(values, kind, _shapes(family, model))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            continue  # it is built of other parts
        try:
            again = _on_meta(family.spec(config), kind)
        except UserError as problem:
            reasons.append(str(problem))
            continue
        reason = unlike(model, again)
        if not reason:
            return family, {"architectures": [family.TYPES[kind]], **values, "dtype": "float32"}
        reasons.append(f"a {kind} has another {reason}")
    nearly = f" ({'; '.join(reasons)})" if reasons else ""
    raise Unpublished(f"no family that transformers knows has this architecture{nearly}")


def _shapes(family: Any, model: Model) -> dict[str, tuple[int, ...]]:
    """Of the tensors that this model is, under their names."""
    parts = family.names(model)
    written = (each for name, ours in model.state_dict().items() for each in piece(parts[name]).write(ours))
    return {theirs: tuple(t.shape) for theirs, t in written}


def _compare(model: Model, family: str) -> float | None:
    """Against transformers, by way of what we would export; it may not have the family."""
    with tempfile.TemporaryDirectory() as folder:
        written, _ = write_hf(model, Path(folder))
        return difference(model, Path(folder)) if written == family else None


def _write_tokenizer(model: Model, folder: Path) -> None:
    """That of the model, or that of bytes."""
    beside.copy(model.home or folder, folder)
    if model.n_tokens == BYTES and not (folder / "tokenizer.json").exists():
        write_bytes(folder)


class new_folder:
    """A folder that appears whole or not at all: written beside, moved when all is well."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UserError(f"{self.path} is there already: give a folder that is new or empty")
        store.make_folder(self.beside)
        return self.beside

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None:
                if self.path.exists():
                    self.path.rmdir()
                os.replace(self.beside, self.path)
        except OSError as problem:
            raise RunError(f"cannot write {self.path}: {(problem.strerror or str(problem)).lower()}") from problem
        finally:
            shutil.rmtree(self.beside, ignore_errors=True)
