"""What a run wrote into its log, as curves."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TAIL = 2048  # bytes in which the last line of a step is found


@dataclass(frozen=True)
class Point:
    step: int
    tokens: int
    seconds: float  # of training
    metrics: dict[str, float]


def last_line(folder: Path) -> dict[str, Any]:
    """The last whole line of a step; {} before there is one."""
    file = folder / "log.jsonl"
    if not file.exists():
        return {}
    with file.open("rb") as log:
        log.seek(max(0, os.path.getsize(file) - TAIL))
        lines = log.read().decode("utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        facts = _read(line)
        if "loss" in facts:
            return facts
    return {}


def validations(folder: Path, tokens_a_step: int) -> list[Point]:
    """What the validations of a run found, in order."""
    points, seconds = [], 0.0
    file = folder / "log.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        facts = _read(line)
        seconds = facts.get("seconds", seconds)
        if "valid" in facts:
            points.append(Point(facts["step"], facts["step"] * tokens_a_step, seconds, facts["valid"]))
    return points


def mean(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[list[float], list[float]]:
    """The mean of curves, as far as all of them go, at every place where one has a point."""
    curves = [each for each in curves if len(each[0])]
    if not curves:
        return [], []
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    places = sorted({at for x, _ in curves for at in x if low <= at <= high})
    return places, [float(np.mean([np.interp(at, x, y) for x, y in curves])) for at in places]


def crossings(x: Sequence[float], a: Sequence[float], y: Sequence[float], b: Sequence[float]) -> list[float]:
    """Where the curve a over x and the curve b over y change places: on straight lines between their points.

    Where they only touch, or are the same from the beginning, nothing crosses.
    """
    both = sorted({at for at in (*x, *y) if max(x[0], y[0]) <= at <= min(x[-1], y[-1])}) if x and y else []
    gap = [float(np.interp(at, x, a) - np.interp(at, y, b)) for at in both]
    found, side, last = [], 0.0, 0
    for i, value in enumerate(gap):
        if value == 0:
            continue
        if side and value * side < 0:
            share = gap[last] / (gap[last] - value)
            found.append(both[last] + share * (both[i] - both[last]))
        side, last = value, i
    return found


def _read(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):  # cut short
        return {}
