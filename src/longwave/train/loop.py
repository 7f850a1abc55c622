"""The training loop, on one screen; what it needs stands below it and in the files beside it."""

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave.errors import RunError, UserError
from longwave.models.model import Model
from longwave.record import aux_losses
from longwave.tasks import Task
from longwave.train.checkpoint import Progress, read_progress, restore, save_best, save_last
from longwave.train.hardware import choose_device, choose_half
from longwave.train.log import Report, asked_to_stop
from longwave.train.lora import adapt
from longwave.train.nan import first_nan
from longwave.train.optim import factor, make_optimizer, set_rates
from longwave.train.plan import Plan

TRIAL = 5  # steps whose time tells how many fit into the minutes given
LATE = 1.15  # and how far the real ones may overrun


@dataclass
class Outcome:
    progress: Progress
    metrics: dict[str, float]  # of the last validation
    ended: str  # "done", or why not


class Trainer:
    """One run: a model, a task, a plan and a folder."""

    def __init__(self, model: Model, task: Task, plan: Plan, folder: Path) -> None:
        self.model, self.task, self.plan, self.folder = model, task, plan, folder
        self.device = choose_device(plan.device)
        self.half = choose_half(plan.precision, self.device)
        self.adapters = adapt(model, plan)
        model.to(self.device).train()
        self.optimizer = make_optimizer(model, plan)
        self.limit = math.inf if plan.steps else 60 * plan.minutes * LATE
        self.steps = plan.steps or self._steps_in(60 * plan.minutes)
        self.progress = Progress(plan=asdict(replace(plan, steps=self.steps)), task=task.describe())
        self.metrics: dict[str, float] = {}
        self.saved = time.monotonic()

    def run(self, *, tensorboard: bool = False) -> Outcome:
        """Train to the end of the plan, from the beginning or from where `resume` put us."""
        progress, ended = self.progress, "done"
        if progress.step == 0:
            self.save()  # a run that is killed early can be resumed
        every = self.plan.validate_every or max(1, self.steps // 10)
        with Report(self.folder, self.steps, progress, tensorboard) as report, asked_to_stop() as stop:
            while progress.step < self.steps and ended == "done":
                began = time.monotonic()
                facts = self.step(progress.step)
                progress.step += 1
                progress.seconds += time.monotonic() - began
                report.step(facts)
                if progress.step % every == 0 or progress.step == self.steps:
                    self.metrics = self.validate(quick=progress.step < self.steps)
                    report.validation(self.metrics)
                if stop:
                    ended = "interrupted"
                elif self.plan.patience and progress.stale >= self.plan.patience:
                    ended = f"no better for {self.plan.patience} validations"
                elif progress.seconds > self.limit:
                    ended = "out of time"
                elif time.monotonic() - self.saved >= self.plan.save_every:
                    self.save()
        self.save()
        return Outcome(progress, self.metrics, ended)

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step: its batches' gradients added up, divided by all their targets, clipped, applied."""
        n = self.plan.accumulate
        batches = [self._to_device(self.task.batch(step * n + i)) for i in range(n)]
        random = torch.get_rng_state()
        loss, count = self._gradients(batches)
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad /= count
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip or math.inf))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            torch.set_rng_state(random)
            self._explain(step, batches)
        scale = factor(self.plan, self.steps, step)
        set_rates(self.optimizer, scale)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"loss": loss / count, "grad_norm": norm, "lr": self.plan.lr * scale, "targets": count}

    @torch.no_grad()
    def validate(self, *, quick: bool) -> dict[str, float]:
        self.model.eval()
        with self._autocast():
            metrics = self.task.validate(self.model, quick=quick, **self.chunk())
        self.model.train()
        self.progress.stale += 1
        if metrics["loss"] < self.progress.best:
            self.progress.best, self.progress.stale = metrics["loss"], 0
            save_best(self.folder, self.model)
        return metrics

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Metrics of the test set."""
        self.model.eval()
        with self._autocast():
            return self.task.test(self.model, **self.chunk())

    def save(self) -> None:
        save_last(self.folder, self.model, self.optimizer, self.progress)
        self.saved = time.monotonic()

    def resume(self) -> None:
        """Go on from the folder's last checkpoint."""
        progress = read_progress(self.folder)
        if progress.task != self.progress.task:
            raise UserError(f"the data of {self.folder} has changed since its run began: it cannot go on from there")
        for name in ("lora", "lora_alpha", "lora_targets"):
            was, now = progress.plan.get(name, getattr(Plan(), name)), getattr(self.plan, name)
            if was != now:
                raise UserError(f"the run in {self.folder} has {name} {was!r}, it cannot go on with {now!r}")
        self.progress = replace(progress, plan=self.progress.plan)
        restore(self.folder, self.model, self.optimizer)

    def _gradients(self, batches: list[Any]) -> tuple[float, int]:
        """Adds the gradients of summed losses; returns the sum and how many targets it has."""
        total, count = 0.0, 0
        for batch in batches:
            loss, n, extra = self._loss(batch)
            (loss + extra).backward()
            total, count = total + float(loss.detach()), count + int(n)
        return total, max(1, count)

    def _loss(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        plan = self.plan
        smoothing = {"smoothing": plan.smoothing, "convention": plan.convention} if plan.smoothing else {}
        with aux_losses() as terms, self._autocast():
            loss, n = self.task.loss(self.model, batch, **smoothing, **self.chunk())
        return loss, n, sum((term.total for term in terms), start=torch.zeros_like(loss))

    def _explain(self, step: int, batches: list[Any]) -> None:
        def again() -> Tensor:
            losses = [loss + extra for loss, _, extra in map(self._loss, batches)]
            return torch.stack(losses).sum()

        self.optimizer.zero_grad()
        where = first_nan(self.model, again)
        self.optimizer.zero_grad()
        self.save()
        raise RunError(f"step {step + 1}: the loss or its gradient is not a number: {where}. The weights before this "
                       "step are saved; a smaller --lr may help")  # fmt: skip

    def _steps_in(self, seconds: float) -> int:
        """How many steps fit: by the time of a few, whose gradients are thrown away."""
        random, times = torch.get_rng_state(), []
        for i in range(TRIAL):
            began = time.monotonic()
            self._gradients([self._to_device(self.task.batch(i)) for _ in range(self.plan.accumulate)])
            times.append(time.monotonic() - began)
            self.optimizer.zero_grad()
        torch.set_rng_state(random)
        return max(10, int(seconds / sorted(times)[TRIAL // 2]))

    def chunk(self) -> dict[str, int]:
        return {"chunk": self.plan.chunk} if self.plan.chunk else {}

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)

    def _to_device(self, batch: Any) -> Any:
        return tuple(t.to(self.device) for t in batch)
