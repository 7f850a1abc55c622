"""A model of sound: frames of features, halved in number by convolutions, then any mixers over them.

    z = gelu(W1 * x)        W1, W2 convolutions of 3 taps around a frame
    h = backbone(gelu(W2 * z)[every second] + P)        P sinusoids, the longest wave the last, as published

`encode` gives h, for a decoder to look up; `lengths` are those of the frames.

Radford et al. 2023, "Robust speech recognition via large-scale weak supervision", section 2.2.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.models.block import Backbone, Residual
from longwave.models.model import Model
from longwave.ops.ragged import zero_pads
from longwave.parts.dropout import Dropout
from longwave.parts.position import sinusoids
from longwave.spec import Spec

Frames = Float[Tensor, "B T C"]


class AudioModel(Model):
    causal = False

    positions: Tensor

    def __init__(
        self,
        *,
        d_model: int,
        blocks: tuple[Spec | tuple, ...],  # mixers, or groups of mixers; each becomes a residual branch
        channels: int = 80,  # features of a frame
        longest: int = 1500,  # places, of two frames each
        norm: str | Spec = "layer",  # rms, layer, gain or none; Spec("layer", eps=1e-12)
        residual: Residual = "pre",  # where the norm stands
        dropout: float = 0.0,  # of embeddings and branches, in training
        init_std: float | None = None,  # of the matrices of mixers at the start; None: each mixer's own
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, channels=channels, longest=longest)
        check_divides("two", 2, "d_model", d_model)
        self.d_model, self.channels, self.longest = d_model, channels, longest
        self.embed = nn.Conv1d(channels, d_model, 3, padding=1)
        self.halve = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)
        self.register_buffer("positions", _waves(longest, d_model))
        self.dropout = Dropout(dropout)
        self.backbone = Backbone(
            d_model, blocks=blocks, norm=norm, residual=residual, dropout=dropout, init_std=init_std
        )

    def places(self, lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " B"] | None:
        return None if lengths is None else (lengths + 1) // 2

    def encode(self, frames: Frames, lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B S D"]:
        if frames.shape[2] != self.channels or not 0 < frames.shape[1] <= 2 * self.longest:
            raise UserError(f"this model hears 1 to {2 * self.longest} frames of {self.channels} features, got "
                            f"{frames.shape[1]} of {frames.shape[2]}")  # fmt: skip
        x = F.gelu(self.embed(zero_pads(frames, lengths).mT))
        x = F.gelu(self.halve(zero_pads(x.mT, lengths).mT)).mT
        x = self.dropout(x + self.positions[: x.shape[1]])
        return self.backbone(x, None, self.places(lengths))[0]

    def forward(
        self, frames: Frames, state: None = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B S D"], None]:
        if state is not None:
            raise UserError("an AudioModel hears the whole sound at once: it has no state and cannot be cut")
        return self.encode(frames, lengths), None

    def hidden(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        return self(x, state, lengths)


def _waves(longest: int, d_model: int) -> Float[Tensor, "S D"]:
    """All sines before all cosines; the slowest pair has a wavelength of 2 pi 10000 exactly."""
    half = d_model // 2
    p = sinusoids(torch.arange(longest)[None], d_model, base=10000.0 ** (half / max(half - 1, 1)))[0]
    return torch.cat([p[:, ::2], p[:, 1::2]], 1).float()
