"""The order in which training sees its data: a function of seed and step alone, so any step is found in O(1).

Each epoch cuts the text into windows at a fresh offset and visits every window once, in an order that is computed,
not stored.
"""

import numpy as np
from numpy.typing import NDArray

from longwave.data.text import Text
from longwave.errors import UserError

Array = NDArray[np.int64]


def shuffled(i: Array, n: int, key: tuple[int, ...]) -> Array:
    """Where a seeded permutation of range(n) sends i: a Feistel network of four rounds, walked until below n."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    keys = np.random.default_rng(key).integers(1 << 32, size=4, dtype=np.uint64)
    out = i.astype(np.uint64)
    todo = np.ones(len(i), bool)
    while todo.any():
        left, right = out[todo] >> np.uint64(half), out[todo] & mask
        for k in keys:
            mixed = (right + k) * np.uint64(0x9E3779B97F4A7C15)
            left, right = right, left ^ ((mixed >> np.uint64(29)) & mask)
        out[todo] = left << np.uint64(half) | right
        todo = out >= n
    return out.astype(np.int64)


class Windows:
    """Batches of windows of `size` bytes."""

    def __init__(self, text: Text, size: int, batch: int, seed: int) -> None:
        if len(text) < size:
            raise UserError(f"the text has {len(text)} bytes, shorter than one window of {size}: "
                            "give more text, or a smaller --context")  # fmt: skip
        self.text, self.size, self.batch, self.seed = text, size, batch, seed
        self.count = max(1, len(text) // size - 1)  # windows an epoch, leaving room for an offset

    def at(self, step: int) -> Array:
        """The batch [B, size] of a step."""
        place = step * self.batch + np.arange(self.batch)
        epoch, index = np.divmod(place, self.count)
        room = min(self.size, len(self.text) - self.count * self.size + 1)
        rows = []
        for e in range(int(epoch[0]), int(epoch[-1]) + 1):
            offset = int(np.random.default_rng((self.seed, e)).integers(room))
            starts = offset + self.size * shuffled(index[epoch == e], self.count, (self.seed, e))
            rows += [self.text[start : start + self.size] for start in starts.tolist()]
        return np.stack(rows).astype(np.int64)
