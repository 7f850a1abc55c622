"""What the optimizer is given: parameters in groups, by their hints, and a learning rate for every step.

    optimizer = torch.optim.AdamW(param_groups(model, lr=1e-3, decay=0.1))

works in any loop; `factor(plan, steps, step)` is the schedule as a function.
"""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import nn

from longwave.hints import hints
from longwave.train.plan import Plan


def param_groups(model: nn.Module, lr: float, decay: float) -> list[dict[str, Any]]:
    """Groups for any torch optimizer: what a hint exempts does not decay, what it slows learns no faster than told."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for _, parameter, wish in hints(model):
        if parameter.requires_grad:
            rate = lr if wish.lr is None else min(lr, wish.lr)
            groups[rate, decay if wish.decay else 0.0].append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak": rate, "weight_decay": weight_decay}
        for (rate, weight_decay), parameters in groups.items()
    ]


def make_optimizer(model: nn.Module, plan: Plan) -> torch.optim.AdamW:
    return torch.optim.AdamW(param_groups(model, plan.lr, plan.decay), betas=plan.betas, fused=True)


def factor(plan: Plan, steps: int, step: int) -> float:
    """The learning rate of a step (the first is 0), in units of its peak."""
    rise = min(1.0, (step + 1) / max(1, plan.warmup))
    if plan.schedule == "noam":  # Vaswani et al. 2017, eq. 3, divided by its peak: min(s / w, sqrt(w / s))
        return min(rise, math.sqrt(max(1, plan.warmup) / (step + 1)))
    done = min(1.0, max(0, step + 1 - plan.warmup) / max(1, steps - plan.warmup))
    fall = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[plan.schedule]
    return rise * (fall if plan.schedule == "constant" else plan.floor + (1 - plan.floor) * fall)


def set_rates(optimizer: torch.optim.Optimizer, scale: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * scale
