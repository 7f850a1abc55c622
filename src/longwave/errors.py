"""Errors that speak to a person: what was wrong, which value, what would be right."""

import difflib
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class UserError(ValueError):
    """Something the user can put right; the command line prints it as one line, without a traceback."""


class RunError(RuntimeError):
    """Work that had begun could not go on (a full disk, a loss that is not a number)."""


def nearest(value: str, valid: Iterable[str]) -> str:
    """What the writer of `value` most likely meant: one name, or all of them where none is near."""
    names = [str(name) for name in valid]
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(value).lower(), folded, n=1, cutoff=0.5)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return f"there is {', '.join(sorted(names))}" if names else "there is none"


def choose(what: str, value: str, table: dict[str, T]) -> T:
    """`table[value]`, or an error that names the nearest key."""
    if value not in table:
        raise UserError(f"unknown {what} {value!r}: {nearest(value, table)}")
    return table[value]


def check_divides(part: str, n: int, whole: str, size: int) -> None:
    """`n` equal parts must fill `size` exactly."""
    if n < 1 or size % n:
        fits = [str(i) for i in range(1, size + 1) if size % i == 0]
        fits = fits if len(fits) < 13 else [*fits[:10], "...", fits[-1]]
        raise UserError(
            f"{whole}={size} cannot be split into {part}={n} equal parts: {part} could be {', '.join(fits)}"
        )


def check_positive(**sizes: int | float) -> None:
    for name, size in sizes.items():
        if not size > 0:
            raise UserError(f"{name} must be positive, got {size}")
