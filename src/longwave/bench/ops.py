"""Ops that have a kernel beside their peers, forward and with gradients, and as a share of what the machine can do."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longwave import ops
from longwave.bench import peers
from longwave.bench.race import forward, forward_backward, race
from longwave.bench.report import Measured

ROUNDS, SECONDS = 9, 10.0
Maker = Callable[[], Callable[..., Any]]


@dataclass
class Contest:
    """An op on one shape: ours, its peers on inputs of their own layout, and what we mean to reach."""

    op: str
    shape: str
    ours: Callable[..., Any]
    inputs: list[Any]
    peers: dict[str, Maker] = field(default_factory=dict)
    peer_inputs: list[Any] | None = None
    forward_only: tuple[str, ...] = ()  # peers without a backward pass, or with one that takes minutes
    target: float | None = None  # times faster than the best peer, forward
    target_both: float | None = None
    limit: tuple[str, float] | None = None  # what of the machine the forward pass uses, and how much
    share: float | None = None  # of that limit, to be reached


def measure(contest: Contest, limits: dict[str, float], with_peers: bool) -> Iterator[Measured]:
    for both in (False, True):
        wrap = forward_backward if both else forward
        runs = {"ours": wrap(contest.ours, contest.inputs)}
        if with_peers:
            theirs = contest.inputs if contest.peer_inputs is None else contest.peer_inputs
            for name, make in contest.peers.items():
                if not (both and name in contest.forward_only):
                    runs[name] = wrap(make(), theirs)
        times = race(runs, rounds=ROUNDS, seconds=SECONDS)
        limit = None if both else contest.limit
        yield Measured.of(
            f"{contest.op}, {'forward + backward' if both else 'forward'}",
            contest.shape,
            times,
            target=contest.target_both if both else contest.target,
            limit=None if limit is None else (limit[0], limit[1] / limits[limit[0]]),
            share=None if both else contest.share,
        )


def contests() -> list[Callable[[], Contest]]:
    """Makers of contests, so that the tensors of one are gone before those of the next."""
    sizes: dict[Callable[..., Contest], list[tuple[int, ...]]] = {
        _selective_scan: [(1, 512, 1536), (1, 2048, 256), (8, 512, 256)],
        _linear_scan: [(8, 1024, 512), (1, 16384, 256), (8, 4096, 1024)],
        _min_gru: [(8, 1024, 512), (1, 16384, 256)],
        _ssd: [(1, 2048, 24, 64, 128), (8, 1024, 8, 64, 64), (1, 16384, 8, 64, 64)],
        _gla: [(8, 1024, 4, 64, 128), (1, 2048, 4, 128, 256), (1, 4096, 8, 64, 64)],
        _wkv: [(8, 512, 256), (1, 1024, 768)],
        _long_conv: [(8, 1024, 128), (8, 1024, 512), (8, 4096, 256), (8, 16384, 128)],
        _vandermonde: [(256, 32, 1024), (512, 32, 4096)],
        _short_conv: [(4, 1024, 1536)],
        _lstm: [(1, 512, 256), (8, 512, 256)],
    }
    return [functools.partial(make, *size) for make, all_sizes in sizes.items() for size in all_sizes]


def _selective_scan(B: int, T: int, D: int, N: int = 16) -> Contest:
    x, dt, z = torch.randn(B, T, D), torch.randn(B, T, D) - 4, torch.randn(B, T, D)
    A, gain, bias = -torch.rand(D, N) * N, torch.randn(D), torch.randn(D)
    shared = [A, torch.randn(B, T, N), torch.randn(B, T, N), gain, z]
    return Contest(
        "selective scan", f"B={B} T={T} D={D} N={N}",
        lambda *given: ops.selective_scan(*given)[0], [x, dt + bias, *shared],  # our projections add the bias
        {
            "transformers, loop": lambda: peers.selective_scan(),
            "transformers, mambapy": lambda: peers.selective_scan(use_mambapy=True),
        },
        [x, dt, *shared, bias],
        forward_only=("transformers, loop",), target=25, target_both=25,
        limit=("exp", B * T * D * N), share=0.5,
    )  # fmt: skip


def _linear_scan(B: int, T: int, D: int) -> Contest:
    a, b = torch.rand(B, T, D) * 0.98 + 0.01, torch.rand(B, T, D) + 0.01
    large = B * T * D > 1 << 24
    candidates: dict[str, Maker] = {"torch, two levels": lambda: peers.scan_two_levels}
    if not large:
        candidates["mambapy"] = lambda: peers.scan_mambapy
        candidates["torch, compiled associative scan"] = peers.scan_compiled
    if T <= 4096 and not large:
        candidates["torch, loop"] = lambda: peers.scan_loop
    return Contest(
        "vector recurrence", f"B={B} T={T} D={D}", lambda a, b: ops.linear_scan(a, b)[0], [a, b], candidates,
        forward_only=("torch, compiled associative scan",), target=2.5, target_both=4,
        limit=("stream", 12 * B * T * D), share=0.85 if large else None,
    )  # fmt: skip


def _min_gru(B: int, T: int, D: int) -> Contest:
    return Contest(
        "fused minGRU", f"B={B} T={T} D={D}", lambda g, c: ops.min_gru(g, c)[0],
        [torch.randn(B, T, D), torch.randn(B, T, D)], {"torch, log-space sums": lambda: peers.min_gru},
        target=50, target_both=50, limit=("stream", 12 * B * T * D),
    )  # fmt: skip


def _ssd(B: int, T: int, H: int, P: int, N: int) -> Contest:
    def ours(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        return ops.linear_recurrence(C, B, x * dt[..., None], dt * A)[0]

    dt = F.softplus(torch.randn(B, T, H) - 4)
    inputs = [torch.randn(B, T, H, P), dt, -torch.arange(1.0, H + 1), *(torch.randn(B, T, 1, N) for _ in range(2))]
    return Contest(
        "Mamba-2 SSD", f"B={B} T={T} H={H} P={P} N={N}", ours, inputs, {"transformers": lambda: peers.ssd},
        target=10, target_both=6, limit=("fma", 6 * B * T * H * P * N), share=0.4,
    )  # fmt: skip


def _gla(B: int, T: int, H: int, K: int, V: int) -> Contest:
    q, k, v = torch.randn(B, T, H, K) / 8, torch.randn(B, T, H, K), torch.randn(B, T, H, V)
    decay = F.logsigmoid(torch.randn(B, T, H, K) + 2) / 4
    return Contest(
        "GLA", f"B={B} T={T} H={H} K={K} V={V}", lambda q, k, v, d: ops.linear_recurrence(q, k, v, d)[0],
        [q, k, v, decay],
        {f"torch, chunks of {n}": functools.partial(functools.partial, peers.gla_chunks, size=n) for n in (16, 32)},
        target=3.5, target_both=2.3, limit=("fma", 6 * B * T * H * K * V), share=0.4,
    )  # fmt: skip


def _wkv(B: int, T: int, D: int) -> Contest:
    return Contest(
        "WKV", f"B={B} T={T} D={D}", lambda k, v, w, u: ops.wkv(k, v, -torch.exp(w), u)[0],
        [torch.randn(B, T, D), torch.randn(B, T, D), torch.randn(D), torch.randn(D)],
        {"transformers": lambda: peers.wkv}, target=90, target_both=140,
        limit=("stream", 12 * B * T * D), share=0.8,
    )  # fmt: skip


def _long_conv(B: int, T: int, D: int) -> Contest:
    u, h = torch.randn(B, T, D), torch.randn(T, D) / T**0.5
    return Contest(
        "long convolution", f"B={B} T={T} D={D}", ops.fftconv, [u, h], {"torch.fft": lambda: peers.long_conv},
        [u.transpose(1, 2).contiguous(), h.T.contiguous()], target=3, target_both=4.5,
    )  # fmt: skip


def _vandermonde(D: int, N: int, T: int) -> Contest:
    rate = (torch.rand(D, 1) * 0.1 + 0.001) * torch.complex(torch.full((N,), -0.5), math.pi * torch.arange(N))
    return Contest(
        "S4D kernel", f"D={D} N={N} T={T}", lambda c, z: ops.vandermonde(c, z, T),
        [torch.randn(D, N, dtype=torch.complex64), rate],
        {"complex exponentials": lambda: lambda c, z: peers.vandermonde(c, z, T)}, target=100, target_both=30,
    )  # fmt: skip


def _short_conv(B: int, T: int, D: int) -> Contest:
    return Contest(
        "short convolution + SiLU", f"B={B} T={T} D={D}",
        lambda x, w, b: ops.short_conv(x, w, b, activation="silu")[0],
        [torch.randn(B, T, D), torch.randn(D, 4), torch.randn(D)], {"torch conv1d": lambda: peers.short_conv},
        limit=("stream", 8 * B * T * D),
    )  # fmt: skip


def _lstm(B: int, T: int, D: int) -> Contest:
    theirs: Any = nn.LSTM(D, D, batch_first=True)
    weights = [p.detach() for p in (theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0)]

    def on(threads: int) -> Callable[..., Tensor]:
        def run(x: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                zero = torch.zeros(1, len(x), D)
                return torch.lstm(x, (zero, zero), [W, U, b, torch.zeros_like(b)], True, 1, 0.0, True, False, True)[0]
            finally:
                torch.set_num_threads(before)

        return run

    counts = sorted({1, torch.get_num_threads()})
    return Contest(
        "LSTM", f"B={B} T={T} D={D}", lambda x, W, U, b: ops.lstm(x, W, U, b)[0], [torch.randn(B, T, D), *weights],
        {f"nn.LSTM, {n} threads": functools.partial(on, n) for n in counts},
        target=1.3, target_both=1.3, limit=("fma", 2 * B * T * 8 * D * D),
    )  # fmt: skip
