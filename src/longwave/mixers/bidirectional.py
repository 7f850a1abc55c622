"""Any causal mixer, read both ways: one copy sees the past, another the future, and their outputs are added.

Recurrence: none; the backward copy needs the whole sequence.

Parallel form:
    y = f(x) + reverse(g(reverse(x)))        each row reversed by its own length

Cost: twice that of the mixer; no decoding, no state.

Paper: Schuster and Paliwal 1997.

Deviations: the two are added, not concatenated, so that the width stays.
"""

from longwave import mixer as base
from longwave.mixers import create
from longwave.spec import Spec


class Bidirectional(base.Bidirectional):
    def __init__(
        self,
        d_model: int,
        *,
        mixer: Spec | str = "lstm",  # the causal mixer that reads each way
    ) -> None:
        super().__init__(create(mixer, d_model), create(mixer, d_model))
