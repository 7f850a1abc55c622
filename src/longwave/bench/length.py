"""Time and memory against length: every mixer forward and through one training step, from 4,096 tokens to a million.

Each mixer runs in a process of its own, so that memory is its own and no more than there may be; one that fails is
reported, and the next has its turn. What streams is trained in chunks, exactly.
"""

import inspect
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from longwave import mixers
from longwave.chunked import chunked
from longwave.mixer import Bidirectional, Mixer
from longwave.state import State
from longwave.train.memory import peak

WIDTH, SHORTEST, FITTED = 256, 1 << 12, 1 << 15
CHUNK = 1 << 15
PASSES = 8  # in which a state that keeps the whole past is trained, at any length: each goes through all of it again
MEMORY = 256  # tokens
MOST = 16 << 30  # bytes that a training step may hold
BESIDE = 3 << 30  # and Python, torch, mixer and input; a process that wants more is refused it
REPEATS, ENOUGH = 3, 5.0  # runs of which the least counts, or seconds after which there is no further one
SLOPE = {"linear": 1.1, "fft": 1.2}  # of time against length, on logarithmic axes, at most


@dataclass
class Curve:
    mixer: str
    work: str
    tokens: list[int] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)  # seconds
    training: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes of the training step, beside mixer and input
    error: str = ""

    @property
    def slopes(self) -> tuple[float, float]:
        """Of forward and training, fitted over the long lengths."""
        return slope(self.tokens, self.forward), slope(self.tokens, self.training)

    def covers(self, tokens: int) -> bool:
        return not self.error and self.tokens[-1:] == [longest(self.mixer, tokens)]

    @property
    def missed(self) -> bool:
        limit = SLOPE.get(self.work, math.inf)
        return bool(self.error) or any(s > limit for s in self.slopes) or max(self.memory, default=0) > MOST


def slope(tokens: list[int], seconds: list[float]) -> float:
    at = [i for i, n in enumerate(tokens) if n >= FITTED]
    if len(at) < 2:
        return float("nan")
    return float(np.polyfit(np.log([tokens[i] for i in at]), np.log([seconds[i] for i in at]), 1)[0])


def subquadratic() -> list[str]:
    return [name for name in mixers.names() if mixers.registry.get(name).work != "quadratic"]  # type: ignore[attr-defined]


def longest(name: str, asked: int) -> int:
    """A cell that is a loop in Python shows its slope on shorter sequences; so does what is quadratic."""
    cls = mixers.registry.get(name)
    return min(asked, {"loop": 1 << 16, "quadratic": 1 << 14}.get(cls.work, asked))  # type: ignore[attr-defined]


def measure(name: str, tokens: int) -> Curve:
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(name, longest(name, tokens), torch.get_num_threads(), send))
    process.start()
    send.close()
    curve = Curve(name, mixers.registry.get(name).work)  # type: ignore[attr-defined]
    try:
        while True:
            curve = receive.recv()
    except EOFError:
        process.join()
    if process.exitcode and not curve.error:
        curve.error = f"ended with {process.exitcode} at {2 * curve.tokens[-1] if curve.tokens else SHORTEST} tokens"
    return curve


def _child(name: str, tokens: int, threads: int, send: Connection) -> None:
    torch.set_num_threads(threads)
    if sys.platform == "linux":  # elsewhere the system does not hold to it
        resource.setrlimit(resource.RLIMIT_DATA, (MOST + BESIDE, MOST + BESIDE))
    curve = Curve(name, mixers.registry.get(name).work)  # type: ignore[attr-defined]
    n = SHORTEST
    try:
        while n <= tokens:
            _add(curve, n)
            send.send(curve)
            n *= 2
    except Exception as problem:
        curve.error = f"{n} tokens: {type(problem).__name__}: {str(problem)[:200]}"
        send.send(curve)


def _add(curve: Curve, n: int) -> None:
    torch.manual_seed(0)
    options = inspect.signature(mixers.registry.get(curve.mixer)).parameters
    given: dict[str, Any] = {"longest": n} if "longest" in options else {}
    mixer, x = mixers.create(curve.mixer, WIDTH, **given), torch.randn(1, n, WIDTH)
    forward = _seconds(lambda: _forward(mixer, x))
    training, memory = peak(lambda: _seconds(lambda: _training(mixer, x)))
    for series, value in zip((curve.tokens, curve.forward, curve.training, curve.memory),
                             (n, forward, training, memory), strict=True):  # fmt: skip
        series.append(value)  # type: ignore[attr-defined]


def _start(mixer: Mixer) -> State:
    """The state before the first token; what looks at a memory gets a short one."""
    needs = "memory" in inspect.signature(mixer.init_state).parameters
    return mixer.init_state(1, memory=torch.randn(1, MEMORY, WIDTH)) if needs else mixer.init_state(1)  # type: ignore[call-arg]


def _chunk(mixer: Mixer, x: torch.Tensor) -> int:
    return max(FITTED, x.shape[1]) // PASSES if mixer.growth == "linear" else CHUNK


def _forward(mixer: Mixer, x: torch.Tensor) -> None:
    with torch.no_grad():
        if mixer.causal:
            state = _start(mixer)
            for piece in x.split(_chunk(mixer, x), 1):
                _, state = mixer(piece, state)
        else:
            mixer(x)


def _training(mixer: Mixer, x: torch.Tensor) -> None:
    """With the gradients of all parameters; of the input where there are none."""
    wanted: list[torch.Tensor] = [p for p in mixer.parameters() if p.requires_grad] or [x.requires_grad_()]
    torch.autograd.grad(_output(mixer, x).sum(), wanted, allow_unused=True)  # the output itself is gone by then


def _output(mixer: Mixer, x: torch.Tensor) -> torch.Tensor:
    if isinstance(mixer, Bidirectional):
        return chunked(mixer, x, chunk=CHUNK)[0]
    return (chunked(mixer, x, _start(mixer), chunk=_chunk(mixer, x)) if mixer.causal else mixer(x))[0]


def _seconds(work: Callable[[], None]) -> float:
    """The least of some runs."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < ENOUGH:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
