"""An op: one definition, and faster forms beside it with the same signature.

    @op
    def linear_scan(a, b, h=None, lengths=None):    # the definition: a loop, in plain torch
        ...

    @linear_scan.form("torch.blocks", worth=lambda b, **_: "" if b.shape[1] > 8 else "few steps: the loop is faster")
    def blocks(a, b, h=None, lengths=None):
        ...

A form is named `backend` or `backend.form`. `when` gets the call's arguments by name and answers "" if the form can
run, or why not; `worth` likewise, whether it should. The first form that can and should is taken, in the order
native, triton, torch, reference, and within a backend as written.

    with use("torch"): ...              forms of this backend only, where an op has any
    LONGWAVE_BACKEND=reference ...      the same for a whole process

What was asked for and cannot run is an error with its reason, never a silent fallback. Kernels live in `ops/native` and
`ops/triton`, in files named like the ops; they are imported when the op is first called.
"""

import functools
import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from longwave.errors import UserError, nearest

BACKENDS = ("native", "triton", "torch", "reference")

_asked: list[str] = []


def _yes(**_: Any) -> str:
    return ""


@dataclass(frozen=True)
class Form:
    name: str
    run: Callable[..., Any]
    when: Callable[..., str]
    worth: Callable[..., str]

    @property
    def backend(self) -> str:
        return self.name.partition(".")[0]


class Op:
    def __init__(self, definition: Callable[..., Any]) -> None:
        functools.update_wrapper(self, definition)
        self.parameters = list(inspect.signature(definition).parameters)
        self.name = definition.__name__
        self.file = definition.__module__.rpartition(".")[2]
        self.reference = definition
        self.cases: Callable[..., Iterator[tuple[str, dict[str, Any]]]] | None = None
        self._forms = [Form("reference", definition, _yes, _yes)]
        self._complete = False

    def form(
        self, name: str, when: Callable[..., str] = _yes, worth: Callable[..., str] = _yes
    ) -> Callable[[Callable], Callable]:
        """Add a form; its parameters must be those of the definition."""
        backend = name.partition(".")[0]
        if backend not in BACKENDS:
            raise ValueError(f"unknown backend {backend!r}: {nearest(backend, BACKENDS)}")

        def add(run: Callable[..., Any]) -> Callable[..., Any]:
            if list(inspect.signature(run).parameters) != self.parameters:
                raise TypeError(f"{self.name}: the form {name!r} has other parameters than the definition")
            self._forms.append(Form(name, run, when, worth))
            self._forms.sort(key=lambda form: BACKENDS.index(form.backend))
            return run

        return add

    def samples(self, make: Callable[..., Iterator[tuple[str, dict[str, Any]]]]) -> Callable[..., Any]:
        """Decorates `cases(make)`: named argument sets that tests, benchmarks and docs share."""
        self.cases = make
        return make

    def forms(self) -> list[Form]:
        """All forms, the preferred first; kernels for this op are found and imported here."""
        if not self._complete:
            self._complete = True
            _import_kernels(self.file)
        return self._forms

    def choose(self, *args: Any, **kwargs: Any) -> Form:
        """The form that this call would take."""
        forms = self._forms if self._complete else self.forms()
        asked = _asked[-1] if _asked else None
        forms = [f for f in forms if asked in (f.name, f.backend)] or forms if asked else forms
        named = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        able = []
        for form in forms:
            if not form.when(**named):
                if not form.worth(**named):
                    return form
                able.append(form)
        if able:
            return able[0]
        reasons = "; ".join(f"{form.name}: {form.when(**named)}" for form in forms)
        raise UserError(f"{self.name} cannot run on {asked!r} here: {reasons}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.choose(*args, **kwargs).run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<op {self.name}: {', '.join(form.name for form in self.forms())}>"


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run while tracing, its result a constant: torch.compiler.assume_constant_result, which imports dynamo (1.4 s)."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@untraced  # an import cannot be traced
def _import_kernels(file: str) -> None:
    for folder in ("native", "triton"):
        package = f"longwave.ops.{folder}"
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.{file}"):
            importlib.import_module(f"{package}.{file}")


ALL: dict[str, Op] = {}


def op(definition: Callable[..., Any]) -> Op:
    """Make a definition dispatchable, and list it."""
    made = Op(definition)
    ALL[made.name] = made
    return made


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Inside, ops take only forms of `backend` ("torch"), or one form ("torch.blocks"), where they have it."""
    known = {*BACKENDS, *(form.name for each in ALL.values() for form in each.forms())}
    if backend not in known:
        raise UserError(f"unknown backend {backend!r}: {nearest(backend, known)}")
    _asked.append(backend)
    try:
        yield
    finally:
        _asked.pop()


if os.environ.get("LONGWAVE_BACKEND"):
    if os.environ["LONGWAVE_BACKEND"] not in BACKENDS:
        raise UserError(f"LONGWAVE_BACKEND={os.environ['LONGWAVE_BACKEND']}: "
                        f"{nearest(os.environ['LONGWAVE_BACKEND'], BACKENDS)}")  # fmt: skip
    _asked.append(os.environ["LONGWAVE_BACKEND"])
