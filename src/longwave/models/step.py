"""A causal language model as one graph that reads a few tokens: torch.export's form, and where ONNX begins.

    program = lw.export_program(model, tokens=1)
    logits, *leaves = program.module()(tokens, lengths, *leaves)      # tokens [B, 1], lengths [B]

The state goes in and out as its tensors, in the order of `state.leaves()`, beginning with those of
`model.init_state(batch, capacity=N)`, which never grow. The batch is any; so is the capacity where the mixers allow it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from longwave import ops
from longwave.errors import UserError, check_positive
from longwave.models.language_model import LanguageModel
from longwave.models.model import Model

MOST = 65536  # rows of a batch
ROWS = 2  # of the batch that tracing begins with


class Step(nn.Module):
    """(tokens [B, T], lengths [B], *leaves) -> (logits [B, T, P], *leaves)"""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)
        held, self.structure = pytree.tree_flatten(model.init_state(1, capacity=1))
        self.there = [t is not None for t in held]

    def forward(self, tokens: Tensor, lengths: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
        given = iter(leaves)
        state = pytree.tree_unflatten([next(given) if there else None for there in self.there], self.structure)
        logits, new = self.model(tokens, state, lengths)
        return logits, *new.leaves()


class OneToken(Step):
    """(tokens [B], live [B], *leaves) -> (logits [B, P], *leaves); a row that is not live keeps its state."""

    def forward(self, tokens: Tensor, lengths: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
        logits, *new = super().forward(tokens[:, None], lengths, *leaves)
        return logits[:, 0], *new


def export_program(model: Model, *, tokens: int = 1, capacity: int = 1024) -> torch.export.ExportedProgram:
    """The graph that reads `tokens` tokens a row, or fewer where `lengths` says so; call it under `torch.no_grad()`."""
    check_positive(tokens=tokens, capacity=capacity)
    step = Step(check_exportable(model))
    return trace(step, torch.zeros(ROWS, tokens, dtype=torch.long), torch.full((ROWS,), tokens), capacity)


def check_exportable(model: Model) -> LanguageModel:
    if not isinstance(model, LanguageModel) or not model.causal:
        raise UserError(f"a {type(model).__name__} has no step to export: that is for causal language models")
    return model


def state_dims(model: LanguageModel, capacity: int) -> list[dict[int, Any]]:
    """Which axes of each tensor of the state are the batch and the capacity."""
    B, S = ROWS, capacity
    sizes = [[t.shape for t in model.init_state(b, capacity=s).leaves()] for b, s in ((B, S), (B + 1, S), (B, S + 1))]
    named = []
    for plain, more_rows, more_room in zip(*sizes, strict=True):
        if len(plain) == 0 or plain[0] == more_rows[0]:
            raise UserError("this model's state has a part without rows: it cannot be exported")
        room = [i for i, (a, b) in enumerate(zip(plain, more_room, strict=True)) if a != b]
        named.append({0: "batch", **dict.fromkeys(room, "capacity")})
    return named


def trace(step: Step, tokens: Tensor, lengths: Tensor, capacity: int) -> torch.export.ExportedProgram:
    """torch.export, with the plain forms of every op: a graph calls no kernel of ours."""
    batch = torch.export.Dim("batch", min=1, max=MOST)
    axes = {"batch": batch, "capacity": torch.export.Dim.AUTO}
    dims = [{axis: axes[name] for axis, name in each.items()} for each in state_dims(step.model, capacity)]
    leaves = step.model.init_state(ROWS, capacity=capacity).leaves()
    with plain(step, 1 if tokens.ndim == 1 else tokens.shape[1]):
        try:
            return torch.export.export(
                step, (tokens, lengths, *leaves), dynamic_shapes=({0: batch}, {0: batch}, tuple(dims)), strict=False
            )
        except Exception as problem:  # torch's own errors are of many kinds
            why = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
            classes = {type(m) for m in step.model.modules()}
            names = ", ".join(sorted(c.__name__ for c in classes if c.__module__.startswith("longwave.mixers.")))
            raise UserError(f"torch.export cannot follow this model, made of {names}: {why.strip()}") from problem


@contextlib.contextmanager
def plain(module: nn.Module, length: int) -> Iterator[None]:
    """One token goes through the definitions, which are the shortest; several through the forms in plain torch."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), ops.use("reference" if length == 1 else "torch"):
            yield
    finally:
        module.train(was_training)
