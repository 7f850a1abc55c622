"""the memory and time that `train` with these flags would take"""

from collections.abc import Sequence
from typing import Any

from longwave import tasks
from longwave.commands._plan import read_plan


def run(argv: Sequence[str]) -> None:
    """Say what a run takes, from a few of its steps."""
    asked = read_plan("estimate", argv)
    import torch

    from longwave.train.estimate import estimate, lines
    from longwave.train.loop import Trainer

    torch.manual_seed(asked.plan.seed)
    model = asked.model()
    name = asked.task.describe()["task"]

    def make(plan: Any) -> Trainer:
        task = tasks.create(name, asked.of_task, context=plan.context, batch=plan.batch, seed=plan.seed)
        return Trainer(asked.model() if plan.lora else model, task, plan, asked.folder)  # adapted once

    found = estimate(make, asked.plan)
    for what, value in lines(found, asked.plan):
        print(f"{what:14s} {value}")
    if found.measured < asked.plan.context:
        print(f"measured on sequences of {found.measured:,} tokens and extrapolated to {asked.plan.context:,}")
