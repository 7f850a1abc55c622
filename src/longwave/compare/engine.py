"""Trials run in processes of their own, so many at a time; what is done is not done again, what was begun goes on."""

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longwave.compare.curve import last_line
from longwave.compare.trial import STOPPED, Result, Trial, prepare, read_result, work_alone
from longwave.errors import UserError
from longwave.train.checkpoint import read_progress
from longwave.train.log import asked_to_stop, open_screen

GLANCE = 0.1  # seconds between two looks at the processes
KNOWN = 0.02  # of the work is done before one says how long the rest will take
Then = Callable[[Trial, Result], Sequence[Trial]]


class Stopped(Exception):
    """Somebody asked for it; everything is saved."""


@dataclass
class Running:
    trial: Trial
    folder: Path
    process: Any

    @property
    def share(self) -> float:
        """How much of its training is done."""
        line = last_line(self.folder)
        try:
            steps = read_progress(self.folder).plan["steps"]
        except UserError:  # it has only begun
            return 0.0
        return min(1.0, float(line.get("step", 0)) / steps)


def work(trial: Trial) -> float:
    """How long it takes, as far as one knows before: seconds, or steps."""
    return float(trial.plan.steps or 60 * trial.plan.minutes)


def run_all(
    trials: Sequence[Trial],
    home: Path,
    *,
    jobs: int,
    threads: int = 1,
    then: Then = lambda trial, result: (),
    more: int = 0,
    work_of_more: float = 0.0,
) -> dict[str, Result]:
    """The results by name. `then` may add trials when one has ended: about `more`, with so much work in all."""
    waiting, running, done = deque(trials), list[Running](), dict[str, Result]()
    clock = _Clock(sum(map(work, trials)) + work_of_more, jobs, timed=any(not t.plan.steps for t in trials))
    with open_screen(len(trials) + more, 0, unit="trial") as screen, asked_to_stop() as stop:

        def end(trial: Trial, result: Result, *, new: bool) -> None:
            done[trial.name] = result
            clock.end(trial, new)
            waiting.extend(then(trial, result))
            if new:
                screen.say(f"{_title(trial)}: {_words(result)}")

        while (waiting or running) and not stop:
            while waiting and len(running) < jobs:
                trial = waiting.popleft()
                if trial.name in done or any(each.trial.name == trial.name for each in running):
                    continue
                folder = prepare(trial, home)
                result = read_result(folder)
                if result is None:
                    running.append(Running(trial, folder, _start(folder, threads)))
                else:
                    end(trial, result, new=False)
            for each in [each for each in running if each.process.exitcode is not None]:
                running.remove(each)
                end(each.trial, _ended(each), new=True)
            shares = [each.share for each in running]
            known = len(done) + len(running) + len(waiting)
            screen.steps = max(known, screen.steps)
            screen.step(len(done) + sum(shares), clock.left(running, shares), _facts(running))
            time.sleep(GLANCE)
        if stop:
            _stop(running)
            raise Stopped
    return done


def _start(folder: Path, threads: int) -> Any:
    """A process for one trial, forked from one that has imported torch already, where the system can do that."""
    able = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if able else "spawn")
    if able:
        context.set_forkserver_preload(["longwave.compare.trial"])
    process = context.Process(target=work_alone, args=(folder, threads))
    process.start()
    return process


def _ended(running: Running) -> Result:
    """Its result; or what to say of a process that ended without one."""
    result = read_result(running.folder)
    if result is not None:
        return result
    code, said = running.process.exitcode, running.folder / "output.txt"
    last = (said.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1]
    why = {STOPPED: "stopped from outside", -9: "killed, most likely for want of memory"}
    return Result(error=f"{why.get(code, f'ended with {code}: {last[:200]}')}; the same command goes on with it")


def _stop(running: list[Running]) -> None:
    for each in running:
        each.process.terminate()
    for each in running:
        each.process.join()


def _facts(running: list[Running]) -> str:
    said = []
    for each in running:
        loss = last_line(each.folder).get("loss")
        said.append(f"{_title(each.trial)}: " + ("starting" if loss is None else f"{each.share:.0%}, loss {loss:.3f}"))
    return "; ".join(said)


def _title(trial: Trial) -> str:
    return f"{trial.label} (lr {trial.plan.lr:g}, seed {trial.plan.seed})"


def _words(result: Result) -> str:
    if result.error:
        return f"failed: {result.error}"
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
    return f"{result.steps:,} steps in {result.seconds:.0f} s, {metrics}"


class _Clock:
    """How long all of it will take: as fast as what was done since we began."""

    def __init__(self, total: float, jobs: int, timed: bool) -> None:
        self.total, self.jobs, self.timed = total, jobs, timed
        self.began, self.here, self.before = time.monotonic(), 0.0, 0.0

    def end(self, trial: Trial, new: bool) -> None:
        if new:
            self.here += work(trial)
        else:
            self.before += work(trial)

    def left(self, running: list[Running], shares: list[float]) -> float:
        begun = sum(work(each.trial) * share for each, share in zip(running, shares, strict=True))
        rest = max(0.0, self.total - self.before - self.here - begun)
        elapsed = time.monotonic() - self.began
        if self.timed and self.here == 0:
            return rest / self.jobs
        done = self.here + begun
        return rest * elapsed / done if done > KNOWN * self.total else float("nan")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
