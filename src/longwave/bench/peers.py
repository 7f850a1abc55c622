"""What a user would otherwise pick: each peer as published, given its inputs in the layout that its own layers pass.

transformers and mambapy are the extra `bench`; forms in plain torch are the best we know, written here.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.errors import UserError


def imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise UserError(f"--peers needs {name.partition('.')[0]}: pip install 'longwave[bench]'") from missing


def of_transformers(module: str, function: str) -> Any:
    """A function of transformers' Mamba or RWKV, without the wrapper that would look for a GPU kernel."""
    found = getattr(imported(f"transformers.models.{module}"), function)
    return getattr(found, "__wrapped__", found)


def selective_scan(**how: Any) -> Callable[..., Tensor]:
    """transformers' Mamba, on transposed views as its mixer passes them: a loop, or mambapy's parallel scan."""
    scan = of_transformers("mamba.modeling_mamba", "mamba_selective_scan")

    def run(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, z: Tensor, bias: Tensor) -> Tensor:
        x, dt, B, C, z = (t.transpose(1, 2) for t in (x, dt, B, C, z))
        return scan(x, dt, A, B, C, D=D, z=z, delta_bias=bias, delta_softplus=True, **how)

    return run


def wkv(k: Tensor, v: Tensor, w: Tensor, bonus: Tensor) -> Tensor:
    return of_transformers("rwkv.modeling_rwkv", "rwkv_linear_attention_cpu")(w, bonus, k, v)[0]


def ssd(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """transformers' Mamba-2 in its default chunks of 256."""
    return of_transformers("mamba2.modeling_mamba2", "mamba2_chunk_scan")(x, dt, A, B, C, chunk_size=256)


def scan_mambapy(a: Tensor, b: Tensor) -> Tensor:
    return imported("mambapy.pscan").pscan(a[..., None].clone(), b[..., None].clone())[..., 0]


def scan_loop(a: Tensor, b: Tensor) -> Tensor:
    h, every = torch.zeros_like(a[:, 0]), []
    for at, bt in zip(a.unbind(1), b.unbind(1), strict=True):
        h = torch.addcmul(bt, at, h)
        every.append(h)
    return torch.stack(every, 1)


def scan_two_levels(a: Tensor, b: Tensor, size: int = 32) -> Tensor:
    """A loop over the places in a chunk, all chunks at once, then a loop over chunks."""
    As, Bs = (t.unflatten(1, (-1, size)).unbind(2) for t in (a, b))
    h, p = Bs[0], As[0]
    every, products = [h], [p]
    for at, bt in zip(As[1:], Bs[1:], strict=True):
        h, p = torch.addcmul(bt, at, h), p * at
        every.append(h)
        products.append(p)
    before, starts = torch.zeros_like(h[:, 0]), []
    for pt, ht in zip(p.unbind(1), h.unbind(1), strict=True):
        starts.append(before)
        before = torch.addcmul(ht, pt, before)
    start = torch.stack(starts, 1)
    joined = [torch.addcmul(x, y, start) for x, y in zip(every, products, strict=True)]
    return torch.stack(joined, 2).flatten(1, 2)


def scan_compiled() -> Callable[[Tensor, Tensor], Tensor]:
    """torch's own associative scan, compiled."""
    associative_scan = imported("torch._higher_order_ops.associative_scan").associative_scan

    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return torch.compile(lambda a, b: associative_scan(combine, (a, b), dim=1, combine_mode="generic")[1])


def min_gru(gate: Tensor, candidate: Tensor) -> Tensor:
    """In log space by two cumulative sums, as the paper's appendix and its well-known implementations."""
    z = torch.sigmoid(gate)
    log_a = torch.log1p(-z)
    log_b = (z * torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))).log()
    sums = log_a.cumsum(1)
    return (sums + torch.logcumsumexp(log_b - sums, 1)).exp()


def gla_chunks(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, size: int = 16) -> Tensor:
    """Products in short chunks, with q exp(G) and k exp(-G): fast where decays are mild."""
    q, k, v, log_decay = (t.unflatten(1, (-1, size)).permute(0, 3, 1, 2, 4) for t in (q, k, v, log_decay))
    G = log_decay.cumsum(-2)
    grown = q * G.exp()
    within = (grown @ (k * (-G).exp()).mT).tril() @ v
    last = G[..., -1:, :]
    added = (k * (last - G).exp()).mT @ v
    S, before = torch.zeros_like(added[:, :, 0]), []
    for new, decay in zip(added.unbind(2), last.exp().squeeze(-2).unbind(2), strict=True):
        before.append(S)
        S = decay[..., None] * S + new
    return (within + grown @ torch.stack(before, 2)).permute(0, 2, 3, 1, 4).flatten(1, 2)


def long_conv(u: Tensor, h: Tensor) -> Tensor:
    """torch.fft with time last, its best layout."""
    T = u.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(u, n=2 * T) * torch.fft.rfft(h, n=2 * T), n=2 * T)[..., :T]


def vandermonde(c: Tensor, z: Tensor, length: int) -> Tensor:
    """The S4D repository's: one complex exponential a mode and step."""
    times = torch.arange(length, device=z.device)
    return 2 * torch.einsum("dn,dnl->dl", c, torch.exp(z[..., None] * times)).real


def short_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = F.conv1d(x.transpose(1, 2), w[:, None], b, padding=w.shape[1] - 1, groups=len(w))[..., : x.shape[1]]
    return F.silu(y).transpose(1, 2)
