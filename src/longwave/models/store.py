"""Models on disk: one safetensors file that holds the weights and, in its header, the spec they belong to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave import models
from longwave.errors import UserError, nearest
from longwave.files import read_header, read_tensors, write_tensors
from longwave.models.model import Model
from longwave.spec import Spec

FILES = ("model.safetensors", "best.safetensors", "last.safetensors")  # what `load` looks for in a folder, in order
TRAINING = "training/"  # prefix of tensors that only a resumed run needs
BESIDE = ".parametrizations."  # in the names of an adapted weight and of its adapters


def save(model: Model, folder: str | Path) -> None:
    """Write `folder/model.safetensors`, whole or not at all."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; a model is saved into a folder")
    make_folder(path)
    write_model(path / FILES[0], model)


def load(path: str | Path) -> Model:
    """The model in a file, a folder that `save` wrote, or a run of training (its best, else its last); in eval mode."""
    file = find(path)
    spec = read_spec(file)
    with torch.device("meta"):  # no memory before the sizes are known to be those of the file
        model = models.create(spec)
    tensors, _ = read_tensors(file, kind="model")
    weights = {name: t for name, t in tensors.items() if not name.startswith(TRAINING)}
    _check_names(file, model.state_dict(), weights)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def find(path: str | Path) -> Path:
    """The file of a model, given itself or its folder."""
    path = Path(path)
    if path.is_dir():
        for name in FILES:
            if (path / name).exists():
                return path / name
        raise UserError(f"no model in {path}: there is no {', '.join(FILES)}")
    if not path.exists():
        raise UserError(f"no model at {path}: there is no such file or folder")
    return path


def read_spec(file: Path) -> Spec:
    text = read_header(file, kind="model").get("spec", "")
    try:
        return Spec.from_json(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as problem:
        raise UserError(f"{file} is damaged: its spec is not JSON") from problem


def write_model(
    file: Path, model: Model, tensors: Mapping[str, Tensor] | None = None, about: Mapping[str, str] | None = None
) -> None:
    """The model's weights, with `tensors` and `about` beside them."""
    weights = {name: t.detach().cpu().contiguous() for name, t in merged(model).items()}
    spec = json.dumps(model.spec.to_json())
    write_tensors(file, {**weights, **(tensors or {})}, {"kind": "model", "spec": spec, **(about or {})})


def merged(model: Model) -> dict[str, Tensor]:
    """The weights of a model as one without adapters has them: what is computed stands for what it is computed from."""
    found = {}
    for name, t in model.state_dict().items():
        path, beside, part = name.partition(BESIDE)
        if not beside:
            found[name] = t
        elif part.endswith(".original"):
            weight = part.removesuffix(".original")
            found[f"{path}.{weight}"] = getattr(model.get_submodule(path), weight)
    return found


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make the folder {path}: {(problem.strerror or str(problem)).lower()}") from problem


def _check_names(file: Path, wanted: dict[str, Any], found: dict[str, Tensor]) -> None:
    for name in wanted:
        if name not in found:
            raise UserError(f"{file} lacks the tensor {name!r} that its spec calls for: {nearest(name, found)}")
    for name, t in found.items():
        if name not in wanted:
            raise UserError(f"{file} holds a tensor {name!r} that its spec does not know: {nearest(name, wanted)}")
        if t.shape != wanted[name].shape:
            shapes = f"{list(t.shape)}, its spec calls for {list(wanted[name].shape)}"
            raise UserError(f"{file}: tensor {name!r} has shape {shapes}")
