"""Longwave: every sequence architecture under one law, in one harness.

    import longwave as lw

    mixer = lw.create_mixer("mamba", d_model=64)
    y, state = mixer(x, mixer.init_state(batch))       # however x is cut, the answer is the same
    model = lw.create_model("lm", mixer="gla")
    lw.generate(model, "def main(")

Nothing heavy is imported before it is used: every name below is loaded when it is first asked for.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longwave import ops as ops
    from longwave.allocator import tune_cpu as tune_cpu
    from longwave.chunked import chunked as chunked
    from longwave.doctor import doctor as doctor
    from longwave.embed import embed as embed
    from longwave.errors import RunError as RunError
    from longwave.errors import UserError as UserError
    from longwave.generate.loop import generate as generate
    from longwave.hints import hint as hint
    from longwave.laws import check as check
    from longwave.mixer import Bidirectional as Bidirectional
    from longwave.mixer import Mixer as Mixer
    from longwave.mixers import create as create_mixer
    from longwave.mixers import names as list_mixers
    from longwave.mixers import register as register_mixer
    from longwave.models import create as create_model
    from longwave.models import names as list_models
    from longwave.models.backbones import backbone as backbone
    from longwave.models.step import export_program as export_program
    from longwave.models.store import save as save
    from longwave.models.weights import load as load
    from longwave.record import aux_loss as aux_loss
    from longwave.record import aux_losses as aux_losses
    from longwave.record import record as record
    from longwave.record import recording as recording
    from longwave.spec import Spec as Spec
    from longwave.state import State as State
    from longwave.train.lora import lora as lora
    from longwave.train.optim import param_groups as param_groups

_HOME = {
    "Bidirectional": "mixer:Bidirectional",
    "Mixer": "mixer:Mixer",
    "RunError": "errors:RunError",
    "Spec": "spec:Spec",
    "State": "state:State",
    "UserError": "errors:UserError",
    "aux_loss": "record:aux_loss",
    "aux_losses": "record:aux_losses",
    "backbone": "models.backbones:backbone",
    "check": "laws:check",
    "chunked": "chunked:chunked",
    "create_mixer": "mixers:create",
    "create_model": "models:create",
    "doctor": "doctor:doctor",
    "embed": "embed:embed",
    "export_program": "models.step:export_program",
    "generate": "generate.loop:generate",
    "hint": "hints:hint",
    "list_mixers": "mixers:names",
    "list_models": "models:names",
    "load": "models.weights:load",
    "lora": "train.lora:lora",
    "ops": "ops",
    "param_groups": "train.optim:param_groups",
    "record": "record:record",
    "recording": "record:recording",
    "register_mixer": "mixers:register",
    "save": "models.store:save",
    "tune_cpu": "allocator:tune_cpu",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from longwave.errors import nearest

        raise AttributeError(f"longwave has no {name!r}: {nearest(name, _HOME)}")
    module, _, attribute = _HOME[name].partition(":")
    found = importlib.import_module(f"longwave.{module}")
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return __all__


class _Front(types.ModuleType):
    """Keeps `lw.generate` and `lw.record` the functions, when importing the modules of these names would hide them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
