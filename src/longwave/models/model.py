"""What every model shares: it obeys the law with its own kind of input, and knows the spec it was built from."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from longwave.models.block import Backbone
from longwave.spec import Spec
from longwave.state import State


class Model(nn.Module):
    """(input, state) -> (answer, state); `state=None` is the beginning and returns None."""

    embed: nn.Module
    spec: Spec  # set by `models.create`: what a checkpoint stores
    backbone: Backbone
    home: Path | None = None  # where it was loaded from; its tokenizer lies there

    def init_state(self, batch: int, **given: Any) -> State:
        raise NotImplementedError(f"{type(self).__name__} has no state")

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features [B, S, d_model] for a decoder to look up."""
        raise NotImplementedError(f"{type(self).__name__} is no encoder")

    def places(self, lengths: Tensor | None) -> Tensor | None:
        """How many features `encode` gives for sources of these lengths."""
        return lengths

    def hidden(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """What the head, or the output matrix, is given."""
        raise NotImplementedError(f"{type(self).__name__} has no hidden states")

    @property
    def n_tokens(self) -> int:
        """How many tokens there are; 0: it reads something else."""
        return getattr(getattr(self, "embed", None), "num_embeddings", 0)

    @property
    def causal(self) -> bool:
        return self.backbone.causal

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
