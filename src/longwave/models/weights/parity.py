"""How a model compares: with another by its spec, and with transformers by its logits."""

import importlib.util
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave import mixers, models
from longwave.models.heads import HEADS
from longwave.models.image_model import ImageModel
from longwave.models.model import Model
from longwave.models.resnet import ResNet
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights import own
from longwave.models.weights.config import read_config
from longwave.models.weights.families import all_families
from longwave.registry import schema
from longwave.spec import Spec

ANSWERS = ("logits", "prediction_logits", "seq_relationship_logits", "pooler_output", "last_hidden_state")
TARGET = "decoder_input_ids"  # what transformers calls what a decoder reads
TRAINING = {"dropout", "init_std", "depth", "dt_min", "dt_max", "balance", "capacity"}  # not of the trained model
SIZES = ("n_", "d_", "dt_rank", "top_groups", "bias_out", "expand", "ranks")  # None: the shapes say whether alike


def difference(model: Model, folder: Path) -> float | None:
    """The largest difference between our logits and those of transformers' model in `folder`."""
    if importlib.util.find_spec("transformers") is None:
        return None
    import transformers
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        values = read_config(folder / "config.json")
        if values["model_type"] in own.TYPES:
            return _from_own(model, folder)
        config = transformers.AutoConfig.from_pretrained(folder)
        if hasattr(config, "rescale_every"):
            config.rescale_every = 0  # would divide their weights in place
        config._experts_implementation = "eager"  # their products of groups need aligned sizes
        theirs: Any = getattr(transformers, config.architectures[0]).from_pretrained(
            folder, config=config, dtype=torch.float32
        )
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return _apart(model, theirs, values)


def _from_own(model: Model, folder: Path) -> float:
    from longwave.hf import open_folder

    return _apart(model, open_folder(folder), {})


def _apart(model: Model, theirs: Any, values: Mapping[str, Any]) -> float:
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, ImageModel | ResNet):
        return _apart_on_images(model, theirs, generator)
    tokens = torch.randint(model.n_tokens, (2, 12), generator=generator)
    how: dict[str, Any] = {"use_cache": False} if "use_cache" in inspect.signature(theirs.forward).parameters else {}
    for family in all_families():
        if values.get("model_type") in family.TYPES and hasattr(family, "asks"):
            tokens, more = family.asks(values, tokens)
            how |= more
    asked = {theirs.main_input_name: tokens, **how}
    with torch.no_grad():
        ours = our_answers(model.eval(), tokens, **({"target": how[TARGET]} if TARGET in how else {}))
        pairs = zip(ours, their_answers(theirs.eval()(**asked)), strict=False)
        return max(float((mine - right).abs().max()) for mine, right in pairs)


def _apart_on_images(model: ImageModel | ResNet, theirs: Any, generator: torch.Generator) -> float:
    shape = model.shape if isinstance(model, ImageModel) else (model.conv1.in_channels, 64, 64)
    images = torch.randn(2, *shape, generator=generator)
    with torch.no_grad():
        out = theirs.eval()(images)
        if hasattr(out, "logits"):
            return float((model.eval()(images)[0] - out.logits).abs().max())
        right = out.last_hidden_state
        return float((model.eval().encode(images) - (right.flatten(2).mT if right.ndim == 4 else right)).abs().max())


def their_answers(out: Any) -> list[Tensor]:
    """What a model of transformers says, the most worked out first."""
    found = [getattr(out, name, None) for name in ANSWERS]
    return [each for each in found if isinstance(each, Tensor)]


def our_answers(model: Model, tokens: Tensor, **how: Any) -> list[Tensor]:
    """Likewise: those of the head, then the hidden states."""
    if isinstance(model, Seq2Seq):
        target = how.pop("target")
        return [model(target, model.init_state(tokens, **how))[0]]
    answer = model(tokens, **how)[0]
    return [*(answer if isinstance(answer, tuple) else [answer]), model.hidden(tokens, **how)[0]]


def unlike(one: Model, two: Model) -> str:
    """What makes two models compute differently, dropout and initial values aside; "" where nothing does."""
    shapes = [{name: t.shape for name, t in model.state_dict().items()} for model in (one, two)]
    for name in shapes[0].keys() | shapes[1].keys():
        if shapes[0].get(name) != shapes[1].get(name):
            return f"shape of {name!r}"
    first, second = (dict(_options(model.spec, "")) for model in (one, two))
    for name in sorted(first.keys() | second.keys()):
        a, b = first.get(name), second.get(name)
        last = re.sub(r"[.\d]+$", "", name).rpartition(".")[2]
        if a != b and not (None in (a, b) and last.startswith(SIZES)):
            return f"{name.lstrip('.')}: {b!r} there, {a!r} here"
    return ""


def _options(spec: Spec, at: str) -> Iterator[tuple[str, Any]]:
    """Every option at its place, defaults filled in, so that two ways of writing a spec agree."""
    if not at or spec.name in models.CLASSES:
        known = {o.name: o.default for o in schema(models.cls(spec.name))}
    elif at.endswith(".head"):
        known = {o.name: o.default for o in schema(HEADS[spec.name])}
    elif spec.name in mixers.names():
        known = {o.name: o.default for o in schema(mixers.registry.get(spec.name))}
    else:
        known = {"eps": 1e-5} if at.endswith("norm") else {}
    yield at, spec.name
    for name, value in {**known, **spec.options}.items():
        if name in TRAINING:
            continue
        here = f"{at}.{name}"
        if name == "norm" and isinstance(value, str):
            value = Spec(value)
        if isinstance(value, Spec):
            yield from _options(value, here)
        elif isinstance(value, tuple | list):
            yield from _listed(value, here)
        else:
            yield here, value


def _listed(items: Any, at: str) -> Iterator[tuple[str, Any]]:
    for i, item in enumerate(items):
        if isinstance(item, Spec):
            yield from _options(item, f"{at}.{i}")
        elif isinstance(item, tuple | list):
            yield from _listed(item, f"{at}.{i}")
        else:
            yield f"{at}.{i}", item
