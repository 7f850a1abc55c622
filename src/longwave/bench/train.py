"""One training step of whole models of published size, beside transformers': forward, backward, AdamW."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from longwave import models
from longwave.bench.peers import imported
from longwave.bench.race import race
from longwave.bench.report import Measured
from longwave.train.memory import peak

BATCH, LENGTH = 1, 1024
ROUNDS, SECONDS = 7, 90.0
SHARE = 0.6  # of oneDNN's rate of matrix products, to be reached by a step
MODELS = ("mamba", "gpt2")
TARGET = {"mamba": (5.0, 10.0), "gpt2": (1.7, 2.2)}  # with the allocator tuned for both, and with the stock one
Step = Callable[[], None]


def measure(name: str, limits: dict[str, float], with_peers: bool, *, stock: bool = False) -> Iterator[Measured]:
    ours, matrices = our_step(name)
    _, memory = peak(ours)
    runs = {"ours": ours}
    held = ""
    if with_peers:
        runs["transformers"] = their_step(name)
        _, theirs = peak(runs["transformers"])
        held = f", {memory / 2**30:.1f} GiB beside {theirs / 2**30:.1f}"
    times = race(runs, rounds=ROUNDS, seconds=SECONDS)
    yield Measured.of(
        f"{name}, a training step", f"B={BATCH} T={LENGTH}{held}", times, target=TARGET[name][stock],
        limit=("oneDNN's products", 6.0 * matrices * BATCH * LENGTH / limits["gemm"]), share=SHARE,
    )  # fmt: skip


def our_step(name: str) -> tuple[Step, int]:
    """A step of the preset at its published size, and how many numbers its matrices have."""
    model: Any = models.create(name).train()
    tokens = torch.randint(1000, (BATCH, LENGTH + 1))
    step = _step(model, lambda: model.loss(tokens[:, :-1], tokens[:, 1:]))
    embedding = 0 if model.unembed is None else model.embed.weight.numel()
    return step, sum(p.numel() for p in model.parameters() if p.ndim == 2) - embedding


def their_step(name: str) -> Step:
    transformers = imported("transformers")
    if name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).train()
    else:
        imported("mambapy.pscan")  # without it transformers quietly walks the sequence, 20 times as slowly
        config = transformers.MambaConfig(hidden_size=768, num_hidden_layers=24, use_mambapy=True)
        model = transformers.MambaForCausalLM(config).train()
    tokens = torch.randint(1000, (BATCH, LENGTH))
    return _step(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def _step(model: nn.Module, loss: Callable[[], Any]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step
