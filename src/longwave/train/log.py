"""What a run says while it goes: a line a step in `log.jsonl`, and for people a bar, or plain lines off a terminal."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from longwave.errors import RunError, UserError
from longwave.files import write_whole
from longwave.train.checkpoint import Progress

QUIET = 10.0  # seconds between plain lines


class Report:
    """Everything that is told about a run, in one place."""

    def __init__(self, folder: Path, steps: int, progress: Progress, tensorboard: bool) -> None:
        self.folder, self.steps, self.progress, self.tensorboard = folder, steps, progress, tensorboard
        self.first = (progress.step, progress.seconds)

    def __enter__(self) -> "Report":
        with ExitStack() as stack:
            self.log = stack.enter_context(open_log(self.folder / "log.jsonl", self.progress.step))
            self.board = stack.enter_context(open_board(self.folder)) if self.tensorboard else None
            self.screen = stack.enter_context(open_screen(self.steps, self.progress.step))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.close()

    def step(self, facts: dict[str, float]) -> None:
        done, seconds = self.progress.step, self.progress.seconds
        self._log(step=done, **facts, seconds=round(seconds, 3))
        each = (seconds - self.first[1]) / max(1, done - self.first[0])
        speed = facts["targets"] / max(each, 1e-9)
        self.screen.step(done, each * (self.steps - done), f"loss {facts['loss']:.4f}  {speed:,.0f} targets/s")
        if self.board:
            for name, value in facts.items():
                self.board.add_scalar(name, value, done)

    def validation(self, metrics: dict[str, float]) -> None:
        self._log(step=self.progress.step, valid=metrics)
        words = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.screen.say(f"step {self.progress.step}/{self.steps}  validation: {words}")
        if self.board:
            for name, value in metrics.items():
                self.board.add_scalar(f"valid/{name}", value, self.progress.step)

    def _log(self, **facts: Any) -> None:
        try:
            self.log.write(json.dumps(facts) + "\n")
            self.log.flush()
        except OSError as problem:
            raise RunError(f"cannot write {self.log.name}: {(problem.strerror or '').lower()}") from problem


class Lines:
    """Progress as plain lines, one in a while."""

    def __init__(self, steps: int, unit: str) -> None:
        self.steps, self.unit, self.spoken = steps, unit, -QUIET

    def step(self, done: float, left: float, facts: str) -> None:
        if time.monotonic() - self.spoken >= QUIET or done == self.steps:
            self.spoken = time.monotonic()
            self.say(f"{self.unit} {int(done)}/{self.steps}  {facts}  {clock(left)} left")

    def say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Bar:
    """Progress as a bar that stays in its place."""

    def __init__(self, steps: int, done: int, bar: Any) -> None:
        self.steps, self.bar = steps, bar
        self.task = bar.add_task("", total=steps, completed=done, left="", facts="")

    def step(self, done: float, left: float, facts: str) -> None:
        self.bar.update(self.task, total=self.steps, completed=done, left=f"{clock(left)} left", facts=facts)

    def say(self, line: str) -> None:
        self.bar.console.print(line, highlight=False, markup=False)


@contextmanager
def open_screen(steps: int, done: int, unit: str = "step") -> Iterator[Lines | Bar]:
    if not sys.stderr.isatty():
        yield Lines(steps, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}  {task.fields[facts]}"))
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        yield Bar(steps, done, bar)


@contextmanager
def open_log(path: Path, resumed_at: int) -> Iterator[TextIO]:
    """A resumed run drops the lines of steps that it will do again."""
    if resumed_at and path.exists():
        kept = [line + "\n" for line in path.read_text(encoding="utf-8").splitlines() if _step(line) <= resumed_at]
        write_whole(path, lambda file: file.write_text("".join(kept), encoding="utf-8"))
    with path.open("a" if resumed_at else "w", encoding="utf-8") as file:
        yield file


@contextmanager
def open_board(folder: Path) -> Iterator[Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as missing:
        raise UserError("--tensorboard needs: pip install 'longwave[tensorboard]'") from missing
    with SummaryWriter(str(folder)) as board:
        yield board


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that is no longer empty after Ctrl-C or a request to terminate; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def clock(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _step(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):  # a line cut short when the run was killed
        return float("inf")
