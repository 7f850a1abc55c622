"""From tensors to pointers and back: checked calls of C functions, and ops of torch made of them."""

import ctypes
import math
import os
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from longwave.errors import UserError
from longwave.ops.dispatch import untraced
from longwave.ops.native import build

_library = torch.library.Library("longwave", "FRAGMENT")  # its ops live as long as it
_forked = False


def _in_a_child() -> None:
    global _forked
    _forked = True  # its copy of OpenMP has lost its threads and would wait for them for ever


os.register_at_fork(after_in_child=_in_a_child)


@untraced
def _reason() -> str:
    return build.reason()


def on_cpu(**arguments: Any) -> str:
    """When a kernel can run: tensors of at most 32 bits on the CPU, and a library to run."""
    for argument in arguments.values():
        for x in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(x, Tensor):
                if x.device.type != "cpu":
                    return "kernels for the CPU only"
                if x.dtype in (torch.float64, torch.complex64, torch.complex128):
                    return "float32 only: float64 and complex numbers are left to torch"
    return _reason()


def rows(x: Tensor) -> Tensor:
    """x with its numbers side by side along the last axis, where rows may lie apart; copied only if need be."""
    return x if x.stride(-1) == 1 else x.contiguous()


def split(rows: int, channels: int) -> int:
    """Into how many pieces a kernel should cut the channels, so that all threads have the same to do; `pieces` in vec.h
    is the same rule."""
    threads = torch.get_num_threads()
    return max(1, min(1 if rows >= 4 * threads else threads // math.gcd(rows, threads), -(-channels // 16)))


class Kernel:
    """A C function and its signature; see `longwave.ops.native`."""

    def __init__(self, name: str, signature: str) -> None:
        self.name = name
        self.parameters = []
        self.letters: list[str] = []
        self.literals: dict[str, int] = {}
        layout = ""
        for parameter in signature.split():
            label, kind = parameter.split(":")
            optional = kind.endswith("?")
            axes, _, dtype = kind.rstrip("?").partition("/")
            scalar = kind in ("int", "float")
            layout += "d" if kind == "float" else "q" if scalar else "q" * len(axes)
            self.parameters.append((label, None if scalar else axes, getattr(torch, dtype or "float32"), optional))
            if not scalar:
                self.letters += [a for a in dict.fromkeys(axes) if a.isalpha() and a not in self.letters]
                self.literals |= {a: int(a) for a in axes if a.isdigit()}
        self.pack = struct.Struct(layout + "q" * (len(self.letters) + 1)).pack
        self.words = len(layout) + len(self.letters) + 1
        self.run: Any = None

    def __call__(self, *arguments: Tensor | int | float | None) -> None:
        values: list[int | float] = []
        sizes = dict(self.literals)
        for (label, axes, dtype, optional), given in zip(self.parameters, arguments, strict=True):
            if axes is None:
                values.append(given)  # type: ignore[arg-type]
            elif given is None:
                if not optional:
                    raise TypeError(f"{self.name}: {label} may not be None")
                values += [0] * len(axes)
            elif isinstance(given, FakeTensor):
                return  # tracing: the outputs' shapes are all that is wanted
            else:
                assert isinstance(given, Tensor)
                values += self._words(label, axes, dtype, given, sizes)
        threads = 1 if _forked else torch.get_num_threads()
        packed = self.pack(*values, *[sizes.get(letter, 0) for letter in self.letters], threads)
        (self.run or self._load())(packed)

    def _words(self, label: str, axes: str, dtype: torch.dtype, x: Tensor, sizes: dict[str, int]) -> list[int]:
        """A tensor as its pointer and the strides of all axes but the last."""
        shape, strides = x.shape, x.stride()  # small calls spend their time here: plain loops
        fits = len(shape) == len(axes)
        for axis, size in zip(axes, shape, strict=False):
            if sizes.setdefault(axis, size) != size:
                fits = False
        if not fits:
            raise TypeError(f"{self.name}: {label} must be [{' '.join(axes)}] with {sizes}, got {list(shape)}")
        if x.dtype is not dtype or not x.is_cpu:
            raise TypeError(f"{self.name}: {label} must be {dtype} on the CPU, got {x.dtype} on {x.device}")
        if strides[-1] != 1 and shape[-1] > 1:
            raise TypeError(f"{self.name}: {label} must be contiguous along its last axis")
        return [x.data_ptr(), *strides[:-1]]

    def _load(self) -> Any:
        library = build.library()
        words = getattr(library, f"{self.name}_words")
        words.restype = ctypes.c_long
        if words() != self.words:
            raise TypeError(f"{self.name}: the struct has {words()} words, the signature {self.words}")
        run = getattr(library, self.name)
        run.argtypes, run.restype = [ctypes.c_char_p], None
        self.run = run
        return run


kernel = Kernel


def define(
    schema: str, setup: Callable[..., None] | None = None, gradients: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function an op of torch, for real tensors and for tracing; without `gradients` it has no derivative."""

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, run, "CPU")
        torch.library.register_fake(f"longwave::{name}", run, lib=_library)
        torch.library.register_autograd(
            f"longwave::{name}", gradients or _no_derivative, setup_context=setup, lib=_library
        )
        return run

    return decorate


def _no_derivative(*_: Any) -> None:
    raise UserError("the native kernels have first derivatives only: take others inside "
                    "`with longwave.ops.use('torch'):`, or with LONGWAVE_BACKEND=torch")  # fmt: skip
