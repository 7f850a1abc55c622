"""Low-rank adapters: a trained model stays as it is, and beside some of its matrices learns W + (alpha / rank) B A.

    adapters = lw.lora(model, rank=8, targets=("qkv", "out"))      # now only A and B train
    print(adapters)                                                # which share of the layers that is
    adapters.save("mine.safetensors")                              # some thousand numbers
    adapters.merge()                                               # into the weights; unmerge() is exact

A matrix is adapted wherever it is used, by its layer or by an op that takes the weight alone, so every mixer keeps its
law. B begins at zero: an adapted model begins as the model it was. Hu et al. 2021, section 4.1.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.utils.parametrize as parametrize
from torch import Tensor, nn

from longwave.errors import UserError, check_positive, nearest
from longwave.files import read_tensors, write_tensors
from longwave.train.plan import Plan

KIND = "adapters"


class LowRank(nn.Module):
    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.A = nn.Parameter(torch.randn(rank, weight.shape[1]).to(weight) / math.sqrt(weight.shape[1]))
        self.B = nn.Parameter(weight.new_zeros(weight.shape[0], rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.B @ self.A)


@dataclass
class Adapters:
    """The adapters of a model, by the names of the layers that have one."""

    model: nn.Module
    rank: int
    alpha: float
    layers: dict[str, LowRank]
    n_layers: int  # that could have one
    merged: dict[str, Tensor] = field(default_factory=dict)  # the weights from before, while they are

    @property
    def share(self) -> float:
        return len(self.layers) / self.n_layers

    def __str__(self) -> str:
        count = sum(p.numel() for layer in self.layers.values() for p in layer.parameters())
        names = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in self.layers))
        return (f"{len(self.layers)} of {self.n_layers} layers are adapted ({100 * self.share:.0f} %): {names}; "
                f"{count:,} numbers train")  # fmt: skip

    def merge(self) -> None:
        """Into the weights: the model is a plain one again, as fast and as large as before."""
        for name in [] if self.merged else self.layers:
            layer: Any = self.model.get_submodule(name)
            self.merged[name] = layer.parametrizations.weight.original.detach().clone()
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)

    def unmerge(self) -> None:
        """Beside the weights again, which are bit for bit what they were."""
        for name, weight in self.merged.items():
            layer: Any = self.model.get_submodule(name)
            with torch.no_grad():
                layer.weight.copy_(weight)
            parametrize.register_parametrization(layer, "weight", self.layers[name])
        self.merged = {}

    def save(self, file: str | Path) -> None:
        tensors = {f"{name}.{key}": t.detach().cpu().contiguous() for name, layer in self.layers.items()
                   for key, t in layer.state_dict().items()}  # fmt: skip
        write_tensors(file, tensors, {"kind": KIND, "lora": json.dumps(dict(rank=self.rank, alpha=self.alpha))})


def lora(model: nn.Module, *, rank: int = 8, alpha: float = 16.0, targets: Sequence[str] = ("all",)) -> Adapters:
    """Freeze a model and put an adapter beside every layer that a target names: by its own name ("qkv"), by the end of
    its path ("0.mixer.out"), or "all".
    """
    check_positive(rank=rank, alpha=alpha)
    linear = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    if any(parametrize.is_parametrized(layer) for layer in linear.values()):
        raise UserError("this model has adapters already: merge() them first")
    chosen = []
    for target in targets:
        found = [name for name in linear if target == "all" or f".{name}".endswith(f".{target}")]
        if not found:
            own = {name.rpartition(".")[2] for name in linear}
            raise UserError(f"no layer of this model is called {target!r}: {nearest(target, {*own, 'all'})}")
        chosen += found
    model.requires_grad_(False)
    layers = {}
    for name in dict.fromkeys(chosen):
        layers[name] = LowRank(linear[name].weight, rank, alpha)
        parametrize.register_parametrization(linear[name], "weight", layers[name])
    return Adapters(model, rank, alpha, layers, len(linear))


def adapt(model: nn.Module, plan: Plan) -> Adapters | None:
    """As a plan asks; a head, which may have begun anew, learns whole."""
    if not plan.lora:
        return None
    adapters = lora(model, rank=plan.lora, alpha=plan.lora_alpha, targets=plan.lora_targets.split(","))
    if isinstance(head := getattr(model, "head", None), nn.Module):
        head.requires_grad_(True)
    return adapters


def load_adapters(model: nn.Module, file: str | Path) -> Adapters:
    """Put adapters that were saved beside the layers of the model that they belong to."""
    tensors, about = read_tensors(file, kind=KIND)
    try:
        how = json.loads(about["lora"])
        targets = list(dict.fromkeys(name.rpartition(".")[0] for name in tensors))
        adapters = lora(model, rank=how["rank"], alpha=how["alpha"], targets=targets)
        for name, layer in adapters.layers.items():
            layer.load_state_dict({key: tensors[f"{name}.{key}"] for key in "AB"})
    except (KeyError, TypeError, RuntimeError, json.JSONDecodeError) as problem:
        raise UserError(f"{file} holds adapters of another model, or is damaged") from problem
    return adapters
