"""What this machine can do at most a second: bytes moved, fused multiply-adds, exponentials, on torch's threads."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from longwave.ops.native.bind import kernel

ROUNDS = 7
STREAM = 1 << 26  # numbers of an array: far more than caches hold

_fma = kernel("fma_limit", "out:T steps:int")
_exp = kernel("exp_limit", "out:T steps:int")


def measure() -> dict[str, float]:
    """stream: bytes of c = a + b; fma: flops; exp: exponentials; gemm: flops of oneDNN's product. All a second."""
    a, b, c = (torch.ones(STREAM) for _ in range(3))
    x, w = torch.randn(2048, 2048), torch.randn(2048, 2048)
    product = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return {
        "stream": 12 * STREAM / best(lambda: torch.add(a, b, out=c)),
        "fma": _rate(_fma, 2_000_000),
        "exp": _rate(_exp, 500_000),
        "gemm": 2 * 2048**3 / best(lambda: product(x, w, None, "none", [], "") if product else x @ w),
    }


def _rate(run: Callable[..., None], steps: int) -> float:
    out = torch.zeros(2)  # operations of a step and thread, and what came of them
    return steps * torch.get_num_threads() / best(lambda: run(out, steps)) * float(out[0])


def best(run: Callable[[], object]) -> float:
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def machine() -> str:
    """The processor, its threads in use, and the software."""
    info = Path("/proc/cpuinfo")
    name = platform.processor() or platform.machine()
    if info.exists():
        lines = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        name = lines[0].partition(":")[2].strip() if lines else name
    waits = os.environ.get("OMP_WAIT_POLICY")  # where threads sleep between kernels, waking them is what is measured
    asleep = f" (OMP_WAIT_POLICY={waits})" if waits else ""
    return f"{name}, {torch.get_num_threads()} threads{asleep}, torch {torch.__version__}"
