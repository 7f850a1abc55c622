"""Images pixel by pixel: a distribution of every value given all before it, along the rows, colour after colour.

    p(x) = prod_i p(x_i | x_1 ... x_{i-1})        as softmaxes over the levels that a value can have

    cnn         masked convolutions: none sees its own pixel's later colours, or a later pixel
    row         a row at a time: an LSTM whose gates see the row above and, by a masked convolution, the row so far
    diagonal    two LSTMs along the diagonals, from the left and from the right: a state sees the pixel beside it and
                the one above, so that each value sees all before it

van den Oord et al. 2016, "Pixel Recurrent Neural Networks", sections 3 and 4, table 1. Deviation: recurrent layers keep
the width of what they are added to, where the paper's are half as wide.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive, choose
from longwave.models.density import check_rows, draw
from longwave.models.model import Model

Grid = Float[Tensor, "B _ H W"]


class Masked(nn.Conv2d):
    """A convolution that sees earlier pixels; of its own pixel the colours before each (`strict`), or that one, too.

    Its channels are of as many colours as there are, in `parts` equal runs of all of them.
    """

    mask: Tensor

    def __init__(
        self, d_in: int, d_out: int, taps: tuple[int, int], colours: int, *, strict: bool = False, parts: int = 1
    ) -> None:
        rows, columns = taps
        super().__init__(d_in, d_out, taps, padding=(rows // 2, columns // 2))
        mask = torch.zeros(d_out, d_in, rows, columns)
        mask[:, :, : rows // 2] = 1
        mask[:, :, rows // 2, : columns // 2] = 1
        ours = torch.arange(d_out) % (d_out // parts) * colours // (d_out // parts)
        theirs = torch.arange(d_in) * colours // d_in
        mask[:, :, rows // 2, columns // 2] = (
            theirs < ours[:, None] if strict else theirs <= ours[:, None]
        ).float()  # fmt: skip
        self.register_buffer("mask", mask)

    def forward(self, input: Grid) -> Grid:
        return F.conv2d(input, self.weight * self.mask, self.bias, padding=self.padding)


def step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    o, f, i, g = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


class RowLSTM(nn.Module):
    def __init__(self, d_model: int, taps: int, colours: int) -> None:
        super().__init__()
        self.input = Masked(d_model, 4 * d_model, (1, taps), colours, parts=4)
        self.state = nn.Conv1d(d_model, 4 * d_model, taps, padding=taps // 2, bias=False)

    def forward(self, x: Grid) -> Grid:
        h = c = torch.zeros_like(x[:, :, 0])
        rows = []
        for gates in self.input(x).unbind(2):
            h, c = step(gates + self.state(h), c)
            rows.append(h)
        return torch.stack(rows, 2)


class DiagonalLSTM(nn.Module):
    """From the left; a state is made of those to the left and above."""

    def __init__(self, d_model: int, colours: int) -> None:
        super().__init__()
        self.input = Masked(d_model, 4 * d_model, (1, 1), colours, parts=4)
        self.state = nn.Conv1d(d_model, 4 * d_model, 2, bias=False)

    def forward(self, x: Grid) -> Grid:
        width = x.shape[3]
        h = c = torch.zeros_like(x[:, :, :, 0])
        columns = []
        for gates in skew(self.input(x)).unbind(3):
            h, c = step(gates + self.state(F.pad(h, (1, 0))), c)
            columns.append(h)
        return unskew(torch.stack(columns, 3), width)


class DiagonalBiLSTM(nn.Module):
    def __init__(self, d_model: int, taps: int, colours: int) -> None:
        super().__init__()
        self.left, self.right = DiagonalLSTM(d_model, colours), DiagonalLSTM(d_model, colours)

    def forward(self, x: Grid) -> Grid:
        right = self.right(x.flip(3)).flip(3)
        return self.left(x) + F.pad(right, (0, 0, 1, 0))[:, :, :-1]  # a row later: what lies right of it is known


class Convolutions(nn.Module):
    def __init__(self, d_model: int, taps: int, colours: int) -> None:
        super().__init__()
        half = d_model // 2
        self.narrow = Masked(d_model, half, (1, 1), colours)
        self.conv = Masked(half, half, (taps, taps), colours)
        self.wide = Masked(half, d_model, (1, 1), colours)

    def forward(self, x: Grid) -> Grid:
        return self.wide(F.relu(self.conv(F.relu(self.narrow(F.relu(x))))))


def skew(x: Grid) -> Float[Tensor, "B _ H _"]:
    """Each row one column later than the one above."""
    rows, columns = x.shape[2:]
    return F.pad(x, (0, rows)).flatten(2)[..., : rows * (rows + columns - 1)].unflatten(2, (rows, -1))


def unskew(x: Grid, width: int) -> Float[Tensor, "B _ H _"]:
    rows = x.shape[2]
    return F.pad(x.flatten(2), (0, rows)).unflatten(2, (rows, -1))[..., :width]


LAYERS: dict[str, type[nn.Module]] = {"cnn": Convolutions, "row": RowLSTM, "diagonal": DiagonalBiLSTM}


class PixelModel(Model):
    causal = False

    def __init__(
        self,
        *,
        kind: Literal["cnn", "row", "diagonal"],  # of its layers
        size: int = 32,  # rows of an image, and columns
        colours: int = 3,  # values of a pixel, each seeing those before it
        levels: int = 256,  # that a value can have
        d_model: int = 96,  # width; a multiple of twice the colours
        n_layers: int = 7,  # layers
        first: int = 7,  # taps of the first convolution, odd
        taps: int = 3,  # of the others, odd
        d_out: int = 96,  # width of the two layers before the softmax
    ) -> None:
        super().__init__()
        check_positive(size=size, colours=colours, levels=levels - 1, n_layers=n_layers, first=first, taps=taps)
        check_divides("twice the colours", 2 * colours, "d_model", d_model)
        check_divides("colours", colours, "d_out", d_out)
        if not (first % 2 and taps % 2):
            raise UserError(f"first and taps are odd, with a pixel in the middle; got {first} and {taps}")
        self.shape, self.levels = (colours, size, size), levels
        layer = choose("kind", kind, LAYERS)
        self.embed = Masked(colours, d_model, (first, first), colours, strict=True)
        self.layers = nn.ModuleList(layer(d_model, taps, colours) for _ in range(n_layers))
        self.join = nn.ModuleList(Masked(d_model, d_model, (1, 1), colours) for _ in range(n_layers * (kind != "cnn")))
        self.top = Masked(d_model, d_out, (1, 1), colours)
        self.out = Masked(d_out, levels * colours, (1, 1), colours)

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W P"]:
        """Of images whose values run from -1 to 1."""
        h = self.embed(x)
        for i, layer in enumerate(self.layers):
            h = h + (self.join[i](layer(h)) if len(self.join) else layer(h))
        y = self.out(F.relu(self.top(F.relu(h))))
        return y.unflatten(1, (self.shape[0], self.levels)).movedim(2, -1)

    def forward(
        self, images: Int[Tensor, "B C H W"], state: None = None, lengths: None = None
    ) -> tuple[Float[Tensor, "B C H W P"], None]:
        """The logits of every value given those before it."""
        if state is not None:
            raise UserError("a PixelModel reads whole images: it has no state and cannot be cut")
        if images.shape[1] != self.shape[0] or images.shape[3] != self.shape[2] or images.shape[2] > self.shape[1]:
            raise UserError(f"this model has images of shape {list(self.shape)}, got {list(images.shape[1:])}")
        return self.logits(2 * images.to(self.out.weight) / (self.levels - 1) - 1), None

    def loss(self, images: Int[Tensor, "B C H W"], lengths: None = None, *, reduction: str = "mean") -> Tensor:
        """- log p of a value, in nats, from which bits a dimension follow."""
        return F.cross_entropy(self(images)[0].movedim(-1, 1), images, reduction=reduction)

    def log_prob(
        self,
        images: Int[Tensor, "B C H W"],
        lengths: None = None,
        *,
        given: Int[Tensor, "B C I W"] | None = None,
        given_lengths: None = None,
    ) -> Float[Tensor, " B"]:
        """log p(image), a row; of the rows below those given, log p(them | those)."""
        rows = 0 if given is None else given.shape[2]
        whole = images if given is None else torch.cat([given, images], 2)
        return -self.loss(whole, reduction="none")[:, :, rows:].sum((1, 2, 3))

    @torch.no_grad()
    def sample(
        self,
        count: int = 1,
        *,
        given: Int[Tensor, "B C I W"] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Int[Tensor, "N C L W"], None]:
        """So many images, value after value; with upper rows given, or those of each, the rows below them."""
        check_rows(count, given)
        colours, size, _ = self.shape
        images = torch.zeros(count, *self.shape, dtype=torch.long, device=self.out.weight.device)
        rows = 0 if given is None else given.shape[2]
        if given is not None:
            images[:, :, :rows] = given
        for y in range(rows, size):
            for x in range(size):
                for k in range(colours):
                    logits = self(images[:, :, : y + 1])[0]
                    images[:, k, y, x] = draw(logits[:, k, y, x], generator)
        return images[:, :, rows:], None
