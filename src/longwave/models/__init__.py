"""Models: mixers in blocks, between an embedding and a head. A preset is a short function that returns a Spec."""

import fnmatch
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from longwave.errors import UserError, choose, nearest
from longwave.registry import check_options
from longwave.spec import Spec

if TYPE_CHECKING:
    from longwave.models.model import Model

CLASSES = {
    "audio_model": "AudioModel",
    "bilm": "BiLM",
    "graph_model": "GraphModel",
    "hierarchical": "Hierarchical",
    "image_model": "ImageModel",
    "language_model": "LanguageModel",
    "pixel_model": "PixelModel",
    "resnet": "ResNet",
    "seq2seq": "Seq2Seq",
    "sequence_model": "SequenceModel",
    "wavegan_discriminator": "WaveGANDiscriminator",
}


def all_presets() -> dict[str, Callable[..., Spec]]:
    """Every public function of every file in `models/presets`."""
    folder = importlib.import_module("longwave.models.presets")
    names = [m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_")]
    files = [importlib.import_module(f"{folder.__name__}.{name}") for name in names]
    return {
        name: function
        for file in files
        for name, function in vars(file).items()
        if inspect.isfunction(function) and function.__module__ == file.__name__ and not name.startswith("_")
    }


def names(pattern: str = "*") -> list[str]:
    return sorted(fnmatch.filter(all_presets(), pattern))


def preset(name: str, **options: Any) -> Spec:
    """The spec that a preset makes of its options."""
    table = all_presets()
    if name not in table:
        raise UserError(f"unknown model {name!r}: {nearest(name, table)}")
    check_options(f"model {name!r}", table[name], options)
    return table[name](**options)


def cls(name: str) -> type["Model"]:
    """The class of a kind of model."""
    known = choose("kind of model", name, CLASSES)
    return getattr(importlib.import_module(f"longwave.models.{name}"), known)


def create(model: str | Spec, **options: Any) -> "Model":
    """Build a preset with some options changed, or a spec as it is."""
    spec = preset(model, **options) if isinstance(model, str) else model.but(**options)
    made = cls(spec.name)
    check_options(f"model {spec.name!r}", made, spec.options)
    built = made(**spec.options)
    built.spec = spec
    return built
