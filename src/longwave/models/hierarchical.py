"""A hierarchy of encoders: the lower one reads each sentence by itself, the upper one the vectors of the sentences.

    v_n = pool(lower(x_n))        y = head(upper(v_1 ... v_N))

x is a batch of documents of sentences, [B, N, T], with the length of each sentence, [B, N]: 0 where there is none, so
that sentences end where they end and documents have as many as they have. A flat batch [B, T] with lengths [B] is cut
into sentences of `piece` tokens. However long a document is, the lower encoder never sees more than a sentence at once,
and what is no sentence is not read at all. Pappagari et al. 2019, "Hierarchical transformers for long document
classification", section 3.2.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.models.block import Backbone, Residual
from longwave.models.heads import Pool, Pooling, make_head
from longwave.models.model import Model
from longwave.ops.ragged import zero_pads
from longwave.spec import Spec


class Hierarchical(Model):
    causal = False
    embed: nn.Embedding

    def __init__(
        self,
        *,
        d_model: int,
        lower: tuple[Spec | tuple, ...],  # blocks that read a sentence
        upper: tuple[Spec | tuple, ...],  # blocks that read the vectors of a document's sentences
        head: Spec,  # classify, tag (the sentences), regress, predict, pooled, none
        vocab: int = 256,  # tokens; 256 are bytes
        piece: int = 128,  # tokens that a flat document is cut into
        pool: Pooling = "mean",  # how a sentence becomes one vector
        norm: str | Spec = "layer",  # rms, layer, gain, batch or none; Spec("rms", eps=1e-6)
        residual: Residual = "pre",  # where the norm stands
        dropout: float = 0.0,  # of embeddings and branches, in training
        init_std: float | None = 0.02,  # of all matrices at the start; None: each mixer's own
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, vocab=vocab, piece=piece)
        self.piece, self.dropout = piece, nn.Dropout(dropout)
        self.embed = nn.Embedding(vocab, d_model)
        how: dict[str, Any] = dict(norm=norm, residual=residual, dropout=dropout, init_std=init_std)
        self.lower = Backbone(d_model, blocks=lower, **how)
        self.pool = Pool(d_model, pool=pool)
        self.upper = Backbone(d_model, blocks=upper, **how)
        self.head = make_head(head, d_model)
        if self.head.tied:
            raise UserError(
                "the upper encoder has no tokens: a head that guesses tokens belongs to the lower one alone"
            )
        nn.init.normal_(self.embed.weight, std=init_std or 1 / math.sqrt(d_model))

    def sentences(self, x: Int[Tensor, "B N T"], lengths: Int[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
        """The vectors of the sentences; zeros where there is none."""
        real = lengths > 0
        held = torch.zeros(*x.shape[:2], self.embed.embedding_dim, dtype=self.embed.weight.dtype, device=x.device)
        if not bool(real.any()):
            return held
        rows, ends = x[real], lengths[real]
        rows = rows[:, : int(ends.max())]
        h, _ = self.lower(self.dropout(self.embed(zero_pads(rows, ends))), None, ends)
        pooled, _ = self.pool(h, None, ends)
        return held.masked_scatter(real[..., None], pooled.to(held))

    def hidden(
        self, x: Int[Tensor, "B *N T"], state: None = None, lengths: Int[Tensor, "B *N"] | None = None
    ) -> tuple[Float[Tensor, "B M D"], None]:
        """Of the sentences, in view of each other."""
        return self._read(x, state, lengths)[0], None

    def forward(
        self, x: Int[Tensor, "B *N T"], state: None = None, lengths: Int[Tensor, "B *N"] | None = None
    ) -> tuple[Tensor, None]:
        h, counts = self._read(x, state, lengths)
        return self.head(h, None, counts)[0], None

    def loss(
        self, x: Int[Tensor, "B *N T"], target: Any, lengths: Int[Tensor, "B *N"] | None = None, **how: Any
    ) -> Tensor:
        h, counts = self._read(x, None, lengths)
        return self.head.loss(h, target, counts, **how)

    def _read(self, x: Tensor, state: None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        if state is not None:
            raise UserError("a hierarchy sees whole documents at once: it has no state and cannot be cut")
        if x.ndim == 2:
            x, lengths = self._cut(x, lengths)
        elif lengths is None:
            lengths = torch.full(x.shape[:2], x.shape[2], device=x.device)
        counts = (lengths > 0).sum(1)
        if bool(((lengths[:, 1:] > 0) & (lengths[:, :-1] == 0)).any()):
            raise UserError("a document's sentences come first: a length of 0 stands only behind the last")
        h, _ = self.upper(self.sentences(x, lengths), None, counts)
        return h, counts

    def _cut(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        n = -(-x.shape[1] // self.piece)
        ends = torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths
        left = ends[:, None] - self.piece * torch.arange(n, device=x.device)
        return F.pad(x, (0, n * self.piece - x.shape[1])).unflatten(1, (n, self.piece)), left.clamp(0, self.piece)
