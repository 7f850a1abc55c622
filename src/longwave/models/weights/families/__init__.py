"""A published family a file: how its config and its tensors are named, to be read in both directions.

    TYPES        its `model_type` in config.json: the class of transformers, None where it has none
    PREFIX, OUT  what its tensors begin with, and the name of the output matrix
    spec(config)    our model of its config        config(model)    and back
    names(model)    what each of our tensors is made of
    ORIGINAL     where the authors' own checkpoints have other names: pattern, replacement
    asks(values, tokens)    with what source and options transformers' model is compared, where not with any
    MARK, PTH    a tensor that tells its authors' .pth or .pt apart; their names again, as in ORIGINAL

`quantization_config` and the like are not here: a file holds plain numbers, or it is refused.
"""

import importlib
import pkgutil
from typing import Any


def all_families() -> list[Any]:
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]
