"""Dense attention in float64 among the paper's sets of positions (section 4.3), a query at a time, on ragged rows."""

from collections.abc import Iterator

from torch import Tensor

from dense_attention import compared
from longwave import mixers


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    stride, c = 5, 2

    def strided(T: int, t: int, head: int) -> set[int]:
        past = range(t + 1)
        return set(past[max(0, t - stride) :]) if head < 2 else {s for s in past if (t - s) % stride == 0}

    def fixed(T: int, t: int, head: int) -> set[int]:
        past = range(t + 1)
        if head < 2:
            return {s for s in past if s // stride == t // stride}
        return {s for s in past if s % stride in range(stride - c, stride)}

    for kind, sees in (("strided", strided), ("fixed", fixed)):
        layer = mixers.create("sparse_transformer", 8, n_heads=4, kind=kind, stride=stride, n_columns=c).double()
        yield from compared(kind, layer, sees, [29, 17, 3])
