"""Whether a difference between two sets of runs is more than chance."""

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, variance

import numpy as np

FEW = 3  # runs of each, below which no test says much
LEVEL = 0.05


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p of Welch's t-test: the chance of such a difference of means, were the true means the same.

    NaN with fewer than two runs of either. Runs that do not vary at all leave no doubt: 1 or 0.
    """
    if min(len(a), len(b)) < 2:
        return math.nan
    of_a, of_b = variance(a) / len(a), variance(b) / len(b)
    if of_a + of_b == 0:
        return float(fmean(a) == fmean(b))
    t = abs(fmean(a) - fmean(b)) / math.sqrt(of_a + of_b)
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    return _beyond(t, freedom)


def permutation(a: Sequence[float], b: Sequence[float]) -> float:
    """The share of all ways to deal these runs into two such sets that set their means at least as far apart."""
    runs = [*a, *b]
    apart = abs(fmean(a) - fmean(b)) * (1 - 1e-12)
    total, n, m = math.fsum(runs), len(a), len(b)
    sums = [math.fsum(some) for some in itertools.combinations(runs, n)]
    return fmean(abs(some / n - (total - some) / m) >= apart for some in sums)


def holm(p: Sequence[float]) -> list[float]:
    """Several tests at once: p-values by which the chance of any false alarm keeps its level (Holm 1979)."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, most = list(p), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = most
    return adjusted


def _beyond(t: float, freedom: float) -> float:
    """How much of Student's distribution lies farther out than t, on both sides.

    The integral of sin(angle) ** (freedom - 1), where t = sqrt(freedom) / tan(angle), with angle = v ** 4, which makes
    it smooth where the angle is small.
    """
    v = np.linspace(0, math.atan2(math.sqrt(freedom), t) ** 0.25, 4001)
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    return min(1.0, 2 * float(np.trapezoid(np.sin(v**4) ** (freedom - 1) * 4 * v**3, v)) / whole)
