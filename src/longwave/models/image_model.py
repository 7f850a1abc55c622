"""A model of images cut into patches, each a token: any mixers over them, and a class or a grid of features.

    x_n = W patch_n + b        a linear map of what a patch holds: a convolution whose stride is its size
    h   = backbone([c, x_1 ... x_N])        c is learned, the same for every image; without it, N tokens
    y   = W' h_0 + b', or of the mean of h

Positions are a mixer of the backbone. Patches run along the rows of the image.

Dosovitskiy et al. 2021, "An image is worth 16x16 words", section 3.1.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.models.block import Backbone, Residual
from longwave.models.model import Model
from longwave.parts.linear import Linear
from longwave.spec import Spec

Image = Float[Tensor, "B C H W"]


class ImageModel(Model):
    causal = False

    def __init__(
        self,
        *,
        d_model: int,
        blocks: tuple[Spec | tuple, ...],  # mixers, or groups of mixers; each becomes a residual branch
        size: int = 224,  # rows of an image, and columns
        patch: int = 16,  # rows of a patch, and columns
        channels: int = 3,  # of an image
        n_classes: int | None = 1000,  # what there is to choose from; None: the answer is the features
        pool: Literal["class", "mean"] = "class",  # what the answer is made of: a token of its own, or all
        norm: str | Spec = "layer",  # rms, layer, gain, batch or none; Spec("layer", eps=1e-12)
        residual: Residual = "pre",  # where the norm stands
        dropout: float = 0.0,  # of embeddings and branches, in training
        init_std: float | None = 0.02,  # of all matrices at the start; None: each mixer's own
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, size=size, patch=patch, channels=channels, n_classes=n_classes or 1)
        check_divides("patch", patch, "size", size)
        self.shape, self.patch, self.pool, self.d_model = (channels, size, size), patch, pool, d_model
        self.embed = Linear(channels * patch * patch, d_model)
        self.first = nn.Parameter(torch.randn(d_model) * 0.02) if pool == "class" else None
        self.dropout = nn.Dropout(dropout)
        self.backbone = Backbone(
            d_model, blocks=blocks, norm=norm, residual=residual, dropout=dropout, init_std=init_std
        )
        self.head = None if n_classes is None else Linear(d_model, n_classes)
        nn.init.normal_(self.embed.weight, std=1 / math.sqrt(self.embed.in_features))
        for layer in (self.embed, self.head):
            if layer is not None:
                nn.init.zeros_(layer.bias)

    def patches(self, images: Image) -> Float[Tensor, "B N P"]:
        """What each patch holds, channel by channel."""
        if images.shape[1:] != self.shape:
            raise UserError(f"this model sees images of shape {list(self.shape)}, got {list(images.shape[1:])}")
        return F.unfold(images, self.patch, stride=self.patch).mT

    def encode(self, images: Image, lengths: Tensor | None = None) -> Float[Tensor, "B S D"]:
        """The features of the class token, where there is one, then of every patch."""
        x = self.embed(self.patches(images))
        if self.first is not None:
            x = torch.cat([self.first.expand(len(x), 1, -1), x], 1)
        return self.backbone(self.dropout(x))[0]

    def forward(self, images: Image, state: None = None, lengths: None = None) -> tuple[Float[Tensor, "B P"], None]:
        if state is not None:
            raise UserError("an ImageModel sees a whole image at once: it has no state and cannot be cut")
        h = self.encode(images)
        pooled = h[:, 0] if self.pool == "class" else h.mean(1)
        return pooled if self.head is None else self.head(pooled), None

    def loss(self, images: Image, target: Int[Tensor, " B"], lengths: None = None, **how: Any) -> Tensor:
        return F.cross_entropy(self(images)[0], target, **how)
