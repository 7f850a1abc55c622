"""lr or batch: how fast to learn, how many sequences at a time, for a run with these flags of `train`"""

from collections.abc import Callable, Sequence
from typing import Any

from longwave import tasks
from longwave.commands._plan import Asked, read_plan
from longwave.commands._trials import leading_words
from longwave.errors import UserError, choose

STEPS = 100
LOW, HIGH = 1e-6, 1.0  # learning rates
MOST = 256  # sequences at a time
ENOUGH = 0.9  # of the highest speed


def run(argv: Sequence[str]) -> None:
    """Try, and say what to take."""
    words = leading_words(argv)
    asked = read_plan("tune", argv[len(words) :])
    if len(words) != 1:
        raise UserError("say what to tune: longwave tune lr, or longwave tune batch; the flags are those of train")
    find = choose("thing to tune", words[0], {"lr": _rate, "batch": _batch})
    import torch

    from longwave.train.loop import Trainer

    def make(plan: Any) -> Trainer:
        torch.manual_seed(plan.seed)
        name = asked.task.describe()["task"]
        task = tasks.create(name, asked.of_task, context=plan.context, batch=plan.batch, seed=plan.seed)
        return Trainer(asked.model(), task, plan, asked.folder)

    find(make, asked)


def _rate(make: Callable[..., Any], asked: Asked) -> None:
    from longwave.train.finder import find_rate

    found = find_rate(make, asked.plan, low=LOW, high=HIGH, steps=asked.plan.steps or STEPS)
    print("learning rate    loss, smoothed")
    shown = range(0, len(found.rates), max(1, len(found.rates) // 20))
    most = max(found.losses)
    for i in shown:
        print(f"{found.rates[i]:13.2e}    {found.losses[i]:8.4f}  {'#' * round(40 * found.losses[i] / most)}")
    print(f"\n--lr {found.best:.1e}   where the loss falls the fastest")


def _batch(make: Callable[..., Any], asked: Asked) -> None:
    from longwave.train.finder import noise_scale, try_batches

    print("batch    tokens/s      memory")
    found = []
    for each in try_batches(make, asked.plan, most=MOST):
        found.append(each)
        speed = each.sequences * asked.plan.context / each.seconds
        print(f"{each.sequences:5d}  {speed:10,.0f}  {each.memory / 2**30:6.2f} GiB", flush=True)
    speeds = [each.sequences / each.seconds for each in found]
    enough = next(each for each, speed in zip(found, speeds, strict=True) if speed >= ENOUGH * max(speeds))
    if len(found) > 1:
        scale = noise_scale(found[0], found[-1])
        print(f"\nat the start of training, averaging more than about {scale:,.0f} sequences gains little")
    print(f"--batch {enough.sequences}   the smallest at {ENOUGH:.0%} of the highest speed")
