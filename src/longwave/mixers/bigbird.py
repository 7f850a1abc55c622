"""BigBird: attention as a sparse graph of blocks: neighbours, two global blocks, and a few random ones.

Recurrence: none; the last block is global and needs the whole sequence.

Parallel form: time is cut into blocks; block i of n sees blocks i - 1, i, i + 1, the first, the last, and some random
ones; the first and the last see all, and so does every block of at most 5 + 2 n_random.
    y_t = attend(q_t; k_s, v_s for s in the blocks that t's block sees)

Cost: training O(T block (5 + n_random) d); no decoding, no state.

Paper: Zaheer et al. 2020, section 2 and appendix D.

Deviations: a row's random blocks are drawn for its own number of blocks, the same in training and use, so that padding
changes nothing; any length works, the last block may be short.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.attention import Pattern, attention
from longwave.ops.block_attention import block_attention
from longwave.parts.linear import Linear

KEPT = 1024  # blocks with draws of their own; after so many they repeat


class BigBird(Mixer):
    causal = False
    draws: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        block: int = 16,  # tokens a block
        n_random: int = 3,  # random blocks that a block sees
        bias: bool = False,  # biases in the projections
        dropout: float = 0.0,  # of attention weights, in training
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(block=block, n_random=n_random + 1)
        self.n_heads, self.block, self.dropout = n_heads, block, dropout
        self.qkv = Linear(d_model, 3 * d_model, bias=bias)
        self.out = Linear(d_model, d_model, bias=bias)
        hint(self.out, "weight", residual=True)
        self.register_buffer("draws", torch.randint(1 << 31, (KEPT, n_random)))

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        dropout, T, b = self.dropout if self.training else 0.0, x.shape[1], self.block
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        at = torch.arange(T, device=x.device)[None]
        ends = torch.full_like(at[0, :1], T) if lengths is None else lengths
        real = torch.where(at < ends[:, None], at, -1)
        n = -(-ends // b)
        blocks = self.sees(n, -(-T // b), mixed=lengths is not None)
        listed = (blocks[..., None] * b + torch.arange(b, device=x.device)).flatten(2)
        listed = torch.where((listed >= 0) & (listed < ends[:, None, None]), listed, -1)
        pad = (0, 0, 0, 0, 0, blocks.shape[1] * b - T)  # so that all blocks of queries are of one size
        y = block_attention(F.pad(q, pad), k, v, listed, Pattern(causal=False), dropout=dropout)[:, :T]

        last = (n[:, None] - 1).clamp_min(0) * b  # the first block and the last see all: their 2 b queries on their own
        ours = torch.cat([at[:, :b].expand(len(last), -1), last + torch.arange(b, device=x.device)], 1).clamp_max(T - 1)
        rows = torch.arange(len(x), device=x.device)[:, None]
        y_all = attention(q[rows, ours], k, v, Pattern(causal=False), ours, real, dropout=dropout)
        index = torch.where(at < b, at, at[:, :b].shape[1] + (at - last).clamp(0, b - 1)).expand(len(x), -1)
        seeing_all = (at < b) | (at >= last)
        y = torch.where(seeing_all[..., None, None], y_all[rows, index], y)
        return self.out(y.flatten(2)), None

    def sees(self, n: Tensor, most: int, mixed: bool = False) -> Tensor:
        """The blocks that each of `most` blocks sees, [rows, most, some]; -1 is none. A row has n[row] blocks, fewer
        than `most` only where rows are `mixed`.
        """
        whole = 5 + 2 * self.draws.shape[1]
        every = torch.arange(min(most, whole), device=n.device)
        every = torch.where(every < n[:, None], every, -1)[:, None].expand(-1, most, -1)
        if most <= whole:
            return every
        some = self._drawn(n, most)
        if not mixed:
            return some
        return torch.where((n <= whole)[:, None, None], every, F.pad(some, (0, whole - some.shape[-1]), value=-1))

    def _drawn(self, n: Tensor, most: int) -> Tensor:
        i, nobody = torch.arange(most, device=n.device), torch.iinfo(torch.long).max
        n = n[:, None].expand(-1, most)
        taken = torch.stack([torch.zeros_like(n), n - 1, *(i.expand_as(n) + step for step in (-1, 0, 1))], -1)
        taken = torch.where((taken >= 0) & (taken < n[..., None]), taken, nobody).sort(-1).values
        taken[..., 1:] = torch.where(taken[..., 1:] == taken[..., :-1], nobody, taken[..., 1:])
        for draw in self.draws[i % KEPT].T:  # among the blocks not yet taken: draw one, step over those before it
            taken = taken.sort(-1).values
            free = n - (taken < nobody).sum(-1)
            pick = draw % free.clamp_min(1)
            for each in taken.unbind(-1):
                pick = pick + (pick >= each)
            taken = torch.cat([taken, torch.where(free > 0, pick, nobody)[..., None]], -1)
        return torch.where(taken < nobody, taken, -1)
