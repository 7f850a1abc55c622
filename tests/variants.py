"""Every option of every mixer, taken from its constructor: no option that no test runs."""

import types
import typing
from collections.abc import Iterator
from typing import Any

from longwave import mixers
from longwave.errors import UserError
from longwave.registry import REQUIRED, schema


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """(mixer, options): the defaults, then one option at a time at each value that its type suggests."""
    for name in mixers.names():
        yield name, {}
        for option in schema(mixers.registry.get(name)):
            for value in _others(option.type, option.default):
                if _fits(name, {option.name: value}):
                    yield name, {option.name: value}


def _fits(name: str, options: dict[str, Any]) -> bool:
    """Whether a mixer of width 8 takes these; 8 heads of keys half as wide as the model it cannot."""
    try:
        mixers.create(name, 8, **options)
    except UserError:
        return False
    return True


def _others(kind: Any, default: Any) -> list[Any]:
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return [value for value in inner if value != default]
    if kind is bool:
        return [not default]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and int in inner:
        return [2]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and bool in inner:
        return [True]
    if kind is int and default not in (None, REQUIRED):
        return [default // 2 if default > 2 else 2 * default]
    if kind is float and default == 0.0:
        return [0.1]
    return []


def label(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])
