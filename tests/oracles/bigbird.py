"""Dense attention in float64 under a mask made from sets of blocks, a query at a time, on a ragged batch."""

from collections.abc import Iterator

from torch import Tensor

from dense_attention import compared
from longwave import mixers


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    layer = mixers.create("bigbird", 8, n_heads=2, block=4, n_random=2).double()
    draws = layer.draws.tolist()

    def sees(T: int, t: int, head: int) -> set[int]:
        n, i = -(-T // 4), t // 4
        blocks = {0, n - 1, i - 1, i, i + 1} & set(range(n))
        for draw in draws[i]:
            free = sorted(set(range(n)) - blocks)
            if free:
                blocks.add(free[draw % len(free)])
        if i in (0, n - 1) or n <= 9:
            blocks = set(range(n))
        return {s for s in range(T) if s // 4 in blocks}

    yield from compared("two random blocks", layer, sees, [41, 18, 3])
