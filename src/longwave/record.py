"""Side channels of a forward pass, so that it returns only (y, state).

`record` shows what happened inside (attention weights, gates, states) and is free unless somebody looks:

    with recording(model) as seen:
        model(x)
    seen["blocks.0.0.mixer/weights"]

`aux_loss` adds a term to the training loss (a router's balance, pondering, reconstruction):

    with aux_losses() as terms:
        y, _ = model(x)
    loss = loss + sum(term.total for term in terms)
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

_tapes: list["Tape"] = []
_ledgers: list[list["AuxLoss"]] = []


class Tape(dict[str, Any]):
    """What was recorded, by `path of the module/name`; a name recorded again gets #2, #3 ..."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []

    def add(self, name: str, value: Any) -> None:
        key = base = "/".join([*self.path[-1:], name])
        count = 1
        while key in self:
            count += 1
            key = f"{base}#{count}"
        self[key] = value


def is_recording() -> bool:
    return bool(_tapes)


def record(name: str, value: Tensor | Callable[[], Tensor]) -> None:
    """Show `value` to whoever is recording. Pass a function where computing it costs something."""
    for tape in _tapes:
        shown = value() if callable(value) else value
        tape.add(name, shown.detach())


@contextmanager
def recording(model: nn.Module | None = None) -> Iterator[Tape]:
    """Collect everything recorded inside; with `model`, names tell which of its modules it was."""
    tape = Tape()

    def enter(path: str) -> Callable[..., None]:
        return lambda *_: tape.path.append(path)

    def leave(*_: Any) -> None:
        tape.path.pop()

    with ExitStack() as stack:
        for path, module in model.named_modules() if model is not None else ():
            stack.callback(module.register_forward_pre_hook(enter(path)).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        _tapes.append(tape)
        stack.callback(_tapes.pop)
        yield tape


@dataclass
class AuxLoss:
    name: str
    total: Tensor  # a scalar, carrying gradient
    per_token: bool  # a sum over tokens: cutting the sequence and adding gives the same


def aux_loss(name: str, value: Tensor | Callable[[], Tensor], *, per_token: bool = True) -> None:
    """Add a term to the loss of whoever trains; nothing happens where nobody collects.

    `value` (or a function that returns it, where computing it costs something) holds a number for every token, already
    zero at pads; a term that is not a sum over tokens (it couples them) says so with `per_token=False`, and cannot be
    trained in chunks.
    """
    for ledger in _ledgers[-1:]:  # whoever collects inside another passes on what it means to
        ledger.append(AuxLoss(name, (value() if callable(value) else value).sum(), per_token))


def is_collecting() -> bool:
    return bool(_ledgers)


@contextmanager
def aux_losses() -> Iterator[list[AuxLoss]]:
    ledger: list[AuxLoss] = []
    _ledgers.append(ledger)
    try:
        yield ledger
    finally:
        _ledgers.pop()
