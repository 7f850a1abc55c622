"""The most memory that a piece of work held, as the operating system counts it."""

import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def peak(work: Callable[[], T]) -> tuple[T, int]:
    """What the work returns, and the bytes that the process held at most meanwhile, beyond what it held before."""
    gc.collect()
    before = held()
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")  # from here on, VmHWM is the most since now
    done = work()
    return done, max(0, most() - before)


def held() -> int:
    """Bytes that the process holds."""
    return _status("VmRSS")


def most() -> int:
    """Bytes that it held at most: since `peak` last began, or ever."""
    return _status("VmHWM")


def _status(name: str) -> int:
    file = Path("/proc/self/status")
    if file.exists():
        line = next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith(name))
        return int(line.split()[1]) << 10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # since the process began; bytes on macOS, else KiB
    return most if sys.platform == "darwin" else most << 10
