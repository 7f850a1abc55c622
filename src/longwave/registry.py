"""Names to classes, and the one schema: a constructor's keyword-only signature.

A folder is a registry: the file `gla.py` defines the class `GLA`, registered as "gla" because the file is there.
Nothing is imported before it is asked for. The comment behind a parameter is its help, on the command line and in the
docs:

    def __init__(self, d_model: int, *, n_heads: int = 4,  # heads of the query
"""

import ast
import contextlib
import fnmatch
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from longwave.errors import UserError, nearest
from longwave.spec import Spec

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    name: str
    type: Any
    default: Any  # REQUIRED where there is none
    help: str


class Registry:
    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self.added: dict[str, type] = {}

    def names(self, pattern: str = "*") -> list[str]:
        """All names, or those that match a pattern such as "*attention"."""
        files = [m.name for m in pkgutil.iter_modules([str(self._folder())]) if not m.name.startswith("_")]
        return sorted(fnmatch.filter({*files, *self.added}, pattern))

    def get(self, name: str) -> type:
        if name in self.added:
            return self.added[name]
        if name not in self.names():
            raise UserError(f"unknown {self.kind} {name!r}: {nearest(name, self.names())}")
        module = importlib.import_module(f"{self.package}.{name}")
        wanted = name.replace("_", "")
        found = [c for c in vars(module).values() if isinstance(c, type) and c.__name__.lower() == wanted]
        if not found:
            raise TypeError(f"{module.__file__} must define the {self.kind} class it is named after")
        return found[0]

    def add(self, cls: type, name: str | None = None) -> type:
        """Register a class of one's own, under its lower-case name unless told otherwise."""
        name = name or cls.__name__.lower()
        if name in self.names() and self.added.get(name) is not cls:
            raise UserError(f"there is a {self.kind} {name!r} already")
        self.added[name] = cls
        return cls

    def summary(self, name: str) -> str:
        """The first line of the docstring, read without importing the file."""
        if name in self.added:
            return (inspect.getdoc(self.added[name]) or "").partition("\n")[0]
        tree = ast.parse((self._folder() / f"{name}.py").read_text(encoding="utf-8"))
        return (ast.get_docstring(tree) or "").partition("\n")[0]

    def create(self, spec: str | Spec, *args: Any, **options: Any) -> Any:
        """Build what `spec` names; `options` are strict: unknown names and wrong types are errors."""
        if isinstance(spec, str):
            spec = Spec(spec)
        cls = self.get(spec.name)
        options = {**spec.options, **options}
        check_options(f"{self.kind} {spec.name!r}", cls, options)
        return cls(*args, **options)

    def _folder(self) -> Path:
        found = importlib.util.find_spec(self.package)
        assert found is not None and found.submodule_search_locations
        return Path(found.submodule_search_locations[0])


def load_file(path: str) -> types.ModuleType:
    """Import a Python file of the user's own."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    made = importlib.util.spec_from_file_location(Path(path).stem, path)
    if made is None or made.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(made)
    sys.modules[made.name] = module  # where inspect looks for its source
    made.loader.exec_module(module)
    return module


def schema(make: Callable[..., Any]) -> list[Option]:
    """The keyword-only parameters of a class or function, with the comments behind them as help."""
    comments = _comments(make if not isinstance(make, type) or is_dataclass(make) else make.__init__)  # type: ignore[misc]
    parameters = inspect.signature(make).parameters.values()
    return [
        Option(p.name, p.annotation, p.default, comments.get(p.name, ""))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def check_options(what: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Every option must be known and of the right type, and none that is needed may be missing."""
    known = {option.name: option for option in schema(make)}
    for name, value in options.items():
        if name not in known:
            raise UserError(f"{what} has no option {name!r}: {nearest(name, known)}")
        if not _fits(value, known[name].type):
            raise UserError(f"{what}: option {name} must be {_words(known[name].type)}, got {value!r}")
    for name, option in known.items():
        if option.default is REQUIRED and name not in options:
            raise UserError(f"{what} needs the option {name!r}")


def _comments(source: Callable[..., Any]) -> dict[str, str]:
    """`name: type = default,  # help` -> {name: help}, for a signature or a dataclass with a name a line."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, TypeError):  # a class made on the fly has no source
        for name, text in re.findall(r"^\s+(\w+)\s*:.*?#\s*(.+)$", inspect.getsource(source), re.MULTILINE):
            found.setdefault(name, text)
    return found


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is typing.Literal:
        return value in inner
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_fits(each, inner[0]) for each in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is None:
        return value is None
    return isinstance(value, kind) if isinstance(kind, type) else True


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(repr(each) for each in typing.get_args(kind))
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
