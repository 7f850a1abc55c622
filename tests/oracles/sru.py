"""Equations 1-4 of Lei et al. 2018 in a plain loop, and the same without its v."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers
from oracles import against_loop


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for peephole in (False, True):
        ours = mixers.create("sru", 5, peephole=peephole).double()

        def loop(x: Tensor, ours=ours) -> Tensor:
            W, W_f, W_r = ours.W.split(5)
            b_f, b_r = ours.b.split(5)
            v_f, v_r = (0, 0) if ours.v is None else ours.v.split(5)
            c, ys = torch.zeros(5, dtype=x.dtype), []
            for x_t in x:
                f = torch.sigmoid(W_f @ x_t + v_f * c + b_f)
                r = torch.sigmoid(W_r @ x_t + v_r * c + b_r)
                c = f * c + (1 - f) * (W @ x_t)
                ys.append(r * c + (1 - r) * x_t * math.sqrt(1 + 2 * math.exp(0)))
            return torch.stack(ys)

        yield from against_loop(ours, loop, ", peephole" if peephole else "")
