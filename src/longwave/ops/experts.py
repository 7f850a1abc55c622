"""A mixture of experts: every token goes through a few small networks, and their answers are added by weight.

    y_n = sum_j gates[n, j] W_out[e] (silu(g) * h),      e = chosen[n, j],      g, h = W_in[e] x_n

Where W_in[e] is no taller than W_out[e] is wide there is no g, and relu(h) in its place.
A negative choice is nobody's. The definition sends every token through every expert; `sorted` sorts tokens by expert
and multiplies once an expert, so that the work is that of the experts chosen.

Shazeer et al. 2017, eq. 1; experts with a gate, Jiang et al. 2024, section 2.1.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.ops.cases import Make
from longwave.ops.dispatch import op
from longwave.ops.linear import linear


def _expert(x: Tensor, W_in: Tensor, W_out: Tensor) -> Tensor:
    h = linear(x, W_in)
    if h.shape[-1] == W_out.shape[-1]:
        return linear(F.relu(h), W_out)
    gate, h = h.chunk(2, -1)
    return linear(F.silu(gate) * h, W_out)


@op
def experts(
    x: Float[Tensor, "N D"],
    chosen: Int[Tensor, "N k"],
    gates: Float[Tensor, "N k"],
    W_in: Float[Tensor, "E in D"],
    W_out: Float[Tensor, "E D F"],
) -> Float[Tensor, "N D"]:
    y = torch.zeros_like(x)
    for e in range(len(W_in)):
        weight = torch.where(chosen == e, gates, 0).sum(-1, keepdim=True)
        y = y + weight * _expert(x, W_in[e], W_out[e])
    return y


@experts.samples
def experts_cases(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    def inputs(N: int, k: int, E: int, D: int = 3, F: int = 5, height: int = 10) -> dict[str, Any]:
        chosen = torch.stack([torch.randperm(E, generator=make.generator)[:k] for _ in range(N)])
        gates = make.between(0.1, 1, N, k)
        return dict(x=make.normal(N, D), chosen=chosen, gates=gates, W_in=make.normal(E, height, D),
                    W_out=make.normal(E, D, F))  # fmt: skip

    yield "one token", inputs(1, 1, 3)
    yield "two of four", inputs(17, 2, 4)
    yield "all of them", inputs(5, 3, 3)
    yield "without a gate", inputs(7, 2, 4, height=5)
    some = inputs(9, 2, 4)
    yield "some dropped, an expert idle", {**some, "chosen": some["chosen"].masked_fill(some["chosen"] == 1, -1)}


def _sorted_when(**_: Any) -> str:
    return "a graph does not know how many tokens an expert gets" if torch.compiler.is_exporting() else ""


@experts.form("torch.sorted", when=_sorted_when)
def sorted_experts(x: Tensor, chosen: Tensor, gates: Tensor, W_in: Tensor, W_out: Tensor) -> Tensor:
    order = chosen.flatten().argsort(stable=True)
    nobody, *counts = torch.bincount(chosen.flatten() + 1, minlength=len(W_in) + 1).tolist()
    order = order[nobody:]
    token = order // chosen.shape[1]
    groups = zip(x.index_select(0, token).split(counts), W_in.unbind(), W_out.unbind(), strict=True)
    answers = [_expert(*group) for group in groups if len(group[0])]
    if not answers:
        return torch.zeros_like(x)
    weight = gates.flatten().index_select(0, order)[:, None]
    return torch.zeros_like(x).index_add(0, token, torch.cat(answers) * weight)


experts.form("torch.every")(experts.reference)
