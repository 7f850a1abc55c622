"""Labelled sequences, and the order in which training sees them: a function of seed and step alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longwave.data.loader import shuffled

POOL = 16  # batches among which sequences of like length are put together


class Examples:
    """Sequences x with their targets y: an array [N, T, ...], or one after another [sum of T, ...], where `starts`
    (N + 1 numbers) says where each begins."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any], starts: NDArray[np.int64] | None = None) -> None:
        self.x, self.y, self.starts = x, y, starts
        assert len(y) == (len(x) if starts is None else len(starts) - 1)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """How long each sequence is; None: all alike."""
        return None if self.starts is None else np.diff(self.starts)

    def rows(self, some: NDArray[np.int64]) -> list[NDArray[Any]]:
        """These sequences, each as it is."""
        if self.starts is None:
            return list(self.x[some])
        return [self.x[self.starts[i] : self.starts[i + 1]] for i in some.tolist()]

    def take(self, some: NDArray[np.int64]) -> "Examples":
        if self.starts is None:
            return Examples(self.x[some], self.y[some])
        return ragged(self.rows(some), self.y[some])

    def split(self, *counts: int, seed: int = 0) -> "list[Examples]":
        """Parts of so many examples drawn at random, and the rest last."""
        order = np.random.default_rng(seed).permutation(len(self))
        return [self.take(np.sort(part)) for part in np.split(order, np.cumsum(counts))]


def ragged(rows: list[NDArray[Any]], y: NDArray[Any]) -> Examples:
    return Examples(np.concatenate(rows), y, np.cumsum([0, *map(len, rows)]))


def padded(rows: list[NDArray[Any]], most: int | None = None) -> tuple[Tensor, Tensor]:
    """One batch [B, T, ...] of rows, cut at `most`, with zeros behind each; and their lengths."""
    rows = [row[:most] for row in rows]
    sizes = np.array([len(row) for row in rows])
    out = np.zeros((len(rows), max(1, sizes.max()), *rows[0].shape[1:]), rows[0].dtype)
    for into, row in zip(out, rows, strict=True):
        into[: len(row)] = row
    return torch.from_numpy(out), torch.from_numpy(sizes)


class Order:
    """Which examples each step sees: every one once an epoch, in an order that is computed, not stored.

    Where sizes are given, those of like length share a batch: `POOL` batches at a time are sorted by length, cut, and
    shown in a random order.
    """

    def __init__(self, count: int, batch: int, seed: int, sizes: NDArray[np.int64] | None = None) -> None:
        self.count, self.batch, self.seed, self.sizes = count, batch, seed, sizes

    def at(self, step: int) -> NDArray[np.int64]:
        if self.sizes is None:
            return self._drawn(step * self.batch, self.batch)
        pool, place = divmod(step, POOL)
        some = self._drawn(pool * POOL * self.batch, POOL * self.batch)
        some = some[np.argsort(self.sizes[some], kind="stable")].reshape(POOL, self.batch)
        return some[np.random.default_rng((self.seed, pool, POOL)).permutation(POOL)[place]]

    def _drawn(self, start: int, n: int) -> NDArray[np.int64]:
        epoch, index = np.divmod(start + np.arange(n), self.count)
        parts = [shuffled(index[epoch == e], self.count, (self.seed, int(e))) for e in np.unique(epoch)]
        return np.concatenate(parts)


def in_order(count: int, batch: int, sizes: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.int64]]:
    """All examples once, short ones first."""
    every = np.arange(count) if sizes is None else np.argsort(sizes, kind="stable")
    yield from (every[i : i + batch] for i in range(0, count, batch))
