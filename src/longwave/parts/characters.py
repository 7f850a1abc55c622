"""Words as vectors, from their characters: convolutions of several widths, the largest answer over a word's characters,
highway layers, a projection. c[B, T, W] -> [B, T, D]; character 0 is none and stands only behind a word's last.

    e = relu(max_w conv_n(c)_w), side by side for each width n        e <- s(G e) relu(H e) + (1 - s(G e)) e

A window begins at every character of a word, with zeros behind the last, so that words of one batch may have any room.
Kim et al. 2016, "Character-aware neural language models", section 2.2 and 2.3; sizes of Peters et al. 2018, 3.4.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.hints import hint
from longwave.parts.linear import Linear


class Highway(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.gate, self.change = Linear(d, d), Linear(d, d)
        with torch.no_grad():
            self.gate.bias.fill_(-2.0)  # at first most is carried
        hint(self.gate, "bias", own_init=True)

    def forward(self, x: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
        return torch.lerp(x, F.relu(self.change(x)), torch.sigmoid(self.gate(x)))


class Characters(nn.Module):
    def __init__(
        self, d_model: int, *, n_chars: int, d_char: int, filters: Sequence[tuple[int, int]], highways: int
    ) -> None:
        """`filters`: pairs of a width and how many there are of it."""
        super().__init__()
        for width, count in filters:
            check_positive(n_chars=n_chars, d_char=d_char, width=width, filters=count)
        self.table = nn.Embedding(n_chars, d_char)
        self.widths = [width for width, _ in filters]
        self.convs = nn.ModuleList(nn.Conv1d(d_char, count, width) for width, count in filters)
        total = sum(count for _, count in filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(highways)))
        self.out = Linear(total, d_model)

    def forward(self, c: Int[Tensor, "B T W"]) -> Float[Tensor, "B T D"]:
        words = c.flatten(0, 1)
        none = words == 0
        x = self.table((words - 1).clamp_min(0)).masked_fill(none[..., None], 0).mT
        found = []
        for width, conv in zip(self.widths, self.convs, strict=True):
            answers = conv(F.pad(x, (0, width - 1)))
            found.append(answers.masked_fill(none[:, None], -torch.inf).amax(-1))
        return self.out(self.highways(F.relu(torch.cat(found, -1)))).unflatten(0, c.shape[:2])
