"""Deep residual networks: convolutions beside a stream that passes them by; names are those of torchvision.

    h = relu(x' + F(x))        x' = x, or a product of it where the width or the size changes
    basic        F = bn conv3 relu bn conv3
    bottleneck   F = bn conv1 relu bn conv3 relu bn conv1, the inner ones at a quarter of the width

The answer is a linear map of the mean over the grid; without classes it is that mean. `encode` gives the grid itself,
for a decoder that looks it up.

He et al. 2016, "Deep residual learning for image recognition", section 3 and table 1; as in torchvision, the 3 x 3
convolution of a bottleneck is the one that halves the size.
"""

import itertools
from typing import Any, Literal

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.models.model import Model
from longwave.parts.linear import Linear

Image = Float[Tensor, "B C H W"]
Grid = Float[Tensor, "B _ _ _"]


class Residual(nn.Module):
    """The convolutions of a block and what its sum needs; the names are torchvision's."""

    downsample: nn.Sequential | None

    def __init__(self, d_in: int, width: int, d_out: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        shapes = (
            [(width, 1, 1), (width, 3, stride), (d_out, 1, 1)] if bottleneck else [(width, 3, stride), (d_out, 3, 1)]
        )
        self.n = len(shapes)
        before = d_in
        for i, (after, taps, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(before, after, taps, step, taps // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(after))
            before = after
        same = stride == 1 and d_in == d_out
        self.downsample = None if same else nn.Sequential(
            nn.Conv2d(d_in, d_out, 1, stride, bias=False), nn.BatchNorm2d(d_out)
        )  # fmt: skip

    def forward(self, x: Image) -> Grid:
        h = x
        for i in range(1, self.n + 1):
            h = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(h))
            h = F.relu(h) if i < self.n else h
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class ResNet(Model):
    causal = False

    def __init__(
        self,
        *,
        kind: Literal["basic", "bottleneck"],  # of its blocks
        depths: tuple[int, ...],  # blocks a stage; each stage but the first halves the size
        widths: tuple[int, ...] = (64, 128, 256, 512),  # channels a stage, in bottlenecks a quarter of them
        stem: int = 64,  # channels of the first convolution
        small: bool = False,  # for small images: the first convolution is 3 x 3 and halves nothing
        channels: int = 3,  # of an image
        n_classes: int | None = 1000,  # what there is to choose from; None: the answer is the features
        frozen: bool = False,  # training changes neither weights nor statistics
    ) -> None:
        super().__init__()
        if len(depths) != len(widths):
            raise UserError(f"depths and widths are a number a stage, got {len(depths)} and {len(widths)}")
        check_positive(stem=stem, channels=channels, depths=min(depths), widths=min(widths), n_classes=n_classes or 1)
        grow = 4 if kind == "bottleneck" else 1
        self.frozen, self.small, self.d_model, self.stages = frozen, small, grow * widths[-1], len(depths)
        self.conv1 = nn.Conv2d(channels, stem, *((3, 1, 1) if small else (7, 2, 3)), bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        before = [stem, *(grow * width for width in widths)]
        for i, (depth, width, (d_in, d_out)) in enumerate(
            zip(depths, widths, itertools.pairwise(before), strict=True), 1
        ):
            first = Residual(d_in, width, d_out, 1 if i == 1 else 2, kind == "bottleneck")
            rest = [Residual(d_out, width, d_out, 1, kind == "bottleneck") for _ in range(depth - 1)]
            self.add_module(f"layer{i}", nn.Sequential(first, *rest))
        self.fc = None if n_classes is None else Linear(self.d_model, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.requires_grad_(not frozen)
        self.train()

    def train(self, mode: bool = True) -> "ResNet":
        return super().train(mode and not self.frozen)

    def grid(self, images: Image) -> Grid:
        h = F.relu(self.bn1(self.conv1(images)))
        h = h if self.small else F.max_pool2d(h, 3, 2, 1)
        for i in range(1, self.stages + 1):
            h = getattr(self, f"layer{i}")(h)
        return h

    def encode(self, images: Image, lengths: Tensor | None = None) -> Float[Tensor, "B S D"]:
        """The last grid of features, row by row."""
        return self.grid(images).flatten(2).mT

    def forward(self, images: Image, state: None = None, lengths: None = None) -> tuple[Float[Tensor, "B P"], None]:
        if state is not None:
            raise UserError("a ResNet sees a whole image at once: it has no state and cannot be cut")
        features = self.grid(images).mean((2, 3))
        return features if self.fc is None else self.fc(features), None

    def loss(self, images: Image, target: Int[Tensor, " B"], lengths: None = None, **how: Any) -> Tensor:
        return F.cross_entropy(self(images)[0], target, **how)
