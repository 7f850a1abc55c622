"""What a model is made of, as data: a name and its options, strict, frozen, to and from JSON.

    Spec("attention", n_heads=8, window=128)

Options may be numbers, strings, booleans, None, other specs, and lists of these. A checkpoint stores its model's spec.
"""

from collections.abc import Mapping
from typing import Any

from longwave.errors import UserError


class Spec:
    __slots__ = ("name", "options")
    name: str
    options: Mapping[str, Any]

    def __init__(self, name: str, /, **options: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", {key: _frozen(value, key) for key, value in options.items()})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Spec is frozen: make another with spec.but(...)")

    def but(self, **options: Any) -> "Spec":
        """The same with some options changed."""
        return Spec(self.name, **{**self.options, **options})

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "options": {key: _plain(value) for key, value in self.options.items()}}

    @staticmethod
    def from_json(data: Any) -> "Spec":
        match data:
            case {"name": str(name), "options": dict(options)} if len(data) == 2:
                return Spec(name, **{str(key): _thawed(value) for key, value in options.items()})
        raise UserError(f"a spec is {{'name': ..., 'options': {{...}}}}, got {str(data)[:80]}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Spec({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self.options.items())])})"


def _frozen(value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(each, key) for each in value)
    if value is None or isinstance(value, bool | int | float | str | Spec):
        return value
    raise UserError(f"option {key!r} holds a {type(value).__name__}: a spec holds numbers, strings, specs and lists")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.to_json() if isinstance(value, Spec) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_thawed(each) for each in value)
    return Spec.from_json(value) if isinstance(value, dict) else value
