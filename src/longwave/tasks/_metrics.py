"""Agreement of answers with what is right, beyond how many are: as scikit-learn and scipy define it."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def accuracy(said: Numbers, right: Numbers) -> float:
    return float((said == right).mean())


def f1(said: Numbers, right: Numbers) -> float:
    """Of class 1: the harmonic mean of precision and recall."""
    both = int(((said == 1) & (right == 1)).sum())
    return 2 * both / max(1, int((said == 1).sum()) + int((right == 1).sum()))


def matthews(said: Numbers, right: Numbers) -> float:
    """The correlation of two yes-no answers; 0 where one of them never varies."""
    return pearson((said == 1).astype(np.float64), (right == 1).astype(np.float64))


def pearson(said: Numbers, right: Numbers) -> float:
    a, b = said - said.mean(), right - right.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0


def spearman(said: Numbers, right: Numbers) -> float:
    """Pearson's of the ranks; those of equals are their mean."""
    return pearson(_ranks(said), _ranks(right))


def _ranks(values: Numbers) -> Numbers:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


METRICS = {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "spearman": spearman}
