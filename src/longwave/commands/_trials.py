"""Flags of the verbs that run trials, and what runs them."""

import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from longwave.errors import UserError
from longwave.registry import Option

RUNNING = [
    Option("jobs", int | None, None, "trials at once; None: as many as there are cores for their threads"),
    Option("threads", int, 1, "of each trial"),
    Option("engine", Literal["local", "ray"], "local", "what runs the trials: processes here, or Ray"),
]


def engine(own: dict[str, Any]) -> Any:
    """What runs trials."""
    from longwave.compare.engine import cores, run_all

    if own["engine"] == "ray":
        from longwave.compare.ray import run_all as run_all_on_ray

        return partial(run_all_on_ray, jobs=own["jobs"], threads=own["threads"])
    return partial(run_all, jobs=own["jobs"] or max(1, cores() // own["threads"]), threads=own["threads"])


def say_how_to_go_on(verb: str, argv: Sequence[str]) -> int:
    """What follows Ctrl-C."""
    again = shlex.join(["longwave", verb, *argv])
    print(f"stopped; everything is saved, the same command goes on: {again}", file=sys.stderr)
    return 130


def leading_words(argv: Sequence[str]) -> list[str]:
    """What stands before the first flag."""
    end = next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))
    return list(argv[:end])


def duration(text: str) -> float:
    """Seconds: 90s, 10m, 1h, 1h30m; a bare number is minutes."""
    whole = f"{text}m" if text[-1:].isdigit() else text
    found = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?", whole)
    try:
        hours, minutes, seconds = (float(each or 0) for each in found.groups()) if found else (0.0, 0.0, 0.0)
    except ValueError:
        hours = minutes = seconds = 0.0
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise UserError(f"a budget is a time such as 90s, 10m or 1h30m, not {text!r}")
    return total


def budget_words(plan: Any) -> str:
    from longwave.train.estimate import words

    return f"{plan.steps:,} steps a trial" if plan.steps else f"{words(60 * plan.minutes)} of training a trial"
