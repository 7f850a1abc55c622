"""What a parameter needs from whoever trains or moves it, said where the parameter is born.

    self.log_decay = nn.Parameter(...)
    hint(self, "log_decay", decay=False, lr=1e-3, float32=True)

Hints live on the module that owns the parameter, so they survive deepcopy, sharding and the meta device. The trainer
obeys them (`train.optim`), and so does `param_groups(model, lr, decay)` for a loop of one's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Hint:
    decay: bool = True  # False: weight decay would pull it away from what it means (a decay rate, a gain, a bias)
    lr: float | None = None  # a learning rate at most this large
    float32: bool = False  # stays in at least float32 when the model is moved to half precision
    residual: bool = False  # the last weight before a residual sum: deep stacks start it smaller
    own_init: bool = False  # its initial value means something: an initialiser for the whole model leaves it alone


def hint(module: nn.Module, name: str, **wishes: bool | float) -> None:
    """Attach wishes to the parameter `module.name`."""
    if name not in module._parameters:
        raise KeyError(f"{type(module).__name__} has no parameter {name!r}")
    module.__dict__.setdefault("parameter_hints", {})[name] = Hint(**wishes)  # type: ignore[arg-type]


def hints(module: nn.Module) -> Iterator[tuple[str, nn.Parameter, Hint]]:
    """Every parameter once: its full name, itself, its hint. By default what has fewer than two axes does not decay."""
    seen = set()
    for prefix, owner in module.named_modules():
        told = owner.__dict__.get("parameter_hints", {})
        for name, parameter in owner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                wish = told.get(name) or Hint(decay=parameter.ndim > 1)
                yield f"{prefix}.{name}".lstrip("."), parameter, wish
