"""Position embeddings as a mixer: what it adds depends on where a token stands, not on what it is.
Recurrence (the state is the number of tokens seen):
    y_t = P[n + t]        n' = n + 1

    axial: time is laid out in rows of c tokens, P[n] = [R[n div c], C[n mod c]]

    concatenated: y_t = W [x_t, P[n + t]], for use without a residual

Parallel form: rows 0 ... T - 1 of the table.

Cost: O(d) a token, concatenated O(d^2); state one number.

Paper: sinusoids, Vaswani et al. 2017, section 3.5; learned tables, Gehring et al. 2017, section 3.1, and the GPT and
BERT models; axial ones, Ho et al. 2019 and the code of Kitaev et al. 2020.

Deviations: a product brings what is concatenated back to the model's width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.mixer import Mixer, ends
from longwave.parts.linear import Linear
from longwave.parts.position import sinusoids
from longwave.state import Empty


class Positions(Mixer):
    def __init__(
        self,
        d_model: int,
        *,
        kind: Literal["sinusoidal", "learned", "axial"] = "sinusoidal",  # a fixed formula, a table, or two small ones
        longest: int = 1024,  # tokens that a learned table has room for
        columns: int = 64,  # axial: tokens a row, each row and each place in a row having a vector of its own
        d_row: int | None = None,  # axial: channels of the row's vector; None: half of them
        combine: Literal["add", "concat"] = "add",  # for a residual sum, or beside the features of the token
        offset: int = 0,  # sinusoids: what the first pair of channels is counted as; some texts count from 1
        halves: bool = False,  # all sines before all cosines, as Marian has them; False: in turn
        base: float = 10000.0,  # sinusoids: how much longer than the first wave the one after the last would be
        first: int = 0,  # sinusoids: the number of the first token; fairseq counts from behind that of the pad
    ) -> None:
        super().__init__()
        check_positive(base=base)
        self.d_model, self.offset, self.halves, self.base, self.first = d_model, offset, halves, base, first
        self.longest = None if kind == "sinusoidal" else longest
        self.table = nn.Parameter(torch.randn(longest, d_model) * 0.02) if kind == "learned" else None
        self.rows = self.columns = None
        if kind == "axial":
            d_row = d_model // 2 if d_row is None else d_row
            check_divides("columns", columns, "longest", longest)
            check_positive(d_row=d_row, channels_of_columns=d_model - d_row)
            self.rows = nn.Parameter(torch.randn(longest // columns, d_row) * 0.02)
            self.columns = nn.Parameter(torch.randn(columns, d_model - d_row) * 0.02)
        self.join = Linear(2 * d_model, d_model, bias=False) if combine == "concat" else None

    def forward(
        self, x: Tensor, state: Empty | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Empty | None]:
        pos = torch.arange(x.shape[1], device=x.device)[None]
        if state is not None:
            pos = state.n[:, None] + pos
        p = self._waves(pos) if self.longest is None else self._look_up(pos)
        y = p.to(x.dtype).expand_as(x)
        if self.join is not None:
            y = self.join(torch.cat([x, y], -1))
        return y, None if state is None else Empty(state.n + ends(x, lengths))

    def _waves(self, pos: Tensor) -> Tensor:
        p = sinusoids(pos + self.first, self.d_model, self.base, offset=self.offset)
        return torch.cat([p[..., ::2], p[..., 1::2]], -1) if self.halves else p

    def _look_up(self, pos: Tensor) -> Tensor:
        assert self.longest is not None
        last = self.longest - 1
        if not torch.compiler.is_compiling() and pos.is_cpu and int(pos.max()) > last:
            raise UserError(f"the table of positions has {last + 1} rows, the sequence has token {int(pos.max()) + 1}: "
                            "longest= makes a longer table, sinusoids have no end")  # fmt: skip
        pos = pos.clamp_max(last)
        if self.rows is None or self.columns is None:
            assert self.table is not None
            return self.table[pos]
        c = len(self.columns)
        return torch.cat([self.rows[pos // c], self.columns[pos % c]], -1)
