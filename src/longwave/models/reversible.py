"""Two residual streams that branches write into in turn, so that what went in can be computed from what came out.

    a, b = x, x
    for f in branches:    a, b = b, a + f(b)

Backward goes from the last branch to the first: it computes f(b) again (random numbers replayed), subtracts it, and
takes the gradient through this one branch. So the activations of one branch are in memory, whatever the depth.

Gomez et al. 2017, eq. 8-9 and algorithm 1; Kitaev et al. 2020, section 3 (an attention and a feed-forward branch in
turn). In floating point a stream is found again but for rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.mixer import Mixer
from longwave.record import aux_loss, aux_losses
from longwave.replay import autocast_here, gradients, random_state, set_random


@dataclass
class _Job:
    """What forward and backward share beside tensors."""

    branches: Sequence[Mixer]
    lengths: Tensor | None
    dt: float | Tensor | None
    random: list[list[Tensor]] = field(default_factory=list)  # before each branch
    terms: list[tuple[str, bool]] = field(default_factory=list)  # auxiliary losses: name, whether a sum over tokens

    def run(self, branch: Mixer, b: Tensor) -> Tensor:
        return branch(b, None, self.lengths, self.dt if branch.continuous else None)[0]


def two_streams(
    x: Tensor, branches: Sequence[Mixer], lengths: Tensor | None, dt: float | Tensor | None
) -> tuple[Tensor, Tensor]:
    """From the beginning, without states; branches are f alone, without a residual of their own."""
    if isinstance(dt, Tensor) and dt.requires_grad:
        raise UserError("through reversible layers dt gets no gradient")
    job = _Job(branches, lengths, dt)
    parameters = [p for branch in branches for p in branch.parameters() if p.requires_grad]
    a, b, *totals = _Reversible.apply(job, x, *parameters)
    for (name, per_token), total in zip(job.terms, totals, strict=True):
        aux_loss(name, total, per_token=per_token)
    return a, b


class _Reversible(torch.autograd.Function):
    """Parameters are inputs, so that autograd.grad, hooks and DDP see ordinary gradients."""

    @staticmethod
    def forward(ctx: Any, job: _Job, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        a, b = x, x
        totals = []
        ctx.job, ctx.autocast = job, autocast_here(x.device)
        for branch in job.branches:  # grad mode is off in here
            job.random.append(random_state(x.device))
            with aux_losses() as terms:
                a, b = b, a + job.run(branch, b)
            job.terms += [(term.name, term.per_token) for term in terms]
            totals += [term.total for term in terms]
        a = a.clone() if a is x else a
        ctx.save_for_backward(a, b, *parameters)
        return (a, b, *totals)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, da: Tensor, db: Tensor, *dtotals: Tensor) -> tuple[Tensor | None, ...]:
        job: _Job = ctx.job
        a, b, *parameters = ctx.saved_tensors
        place = {id(p): i for i, p in enumerate(parameters)}
        summed: list[Tensor | None] = [None] * len(parameters)
        todo = list(dtotals)
        now = random_state(a.device)
        for branch, random in zip(reversed(job.branches), reversed(job.random), strict=True):
            own = [p for p in branch.parameters() if p.requires_grad]
            seen = a.detach().requires_grad_()
            set_random(random, a.device)
            with torch.enable_grad(), ctx.autocast(), aux_losses() as terms:
                y = job.run(branch, seen)
            last = [todo.pop() for _ in terms][::-1]
            outs = [(y, db.to(y.dtype)), *((term.total, d) for term, d in zip(terms, last, strict=True))]
            through, *found = gradients(outs, [seen, *own])
            for p, g in zip(own, found, strict=True):
                before = summed[place[id(p)]]
                summed[place[id(p)]] = before if g is None else g if before is None else before + g
            a, b = b - y.detach(), a
            da, db = db, da if through is None else da + through
        set_random(now, a.device)
        return (None, da + db, *summed)
