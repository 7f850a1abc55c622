"""A model of whole sequences: tokens or frames in, a backbone, and a head (see `heads`). BERT is one of them.

Tokens may be of several types (BERT: of the first sentence or the second), each with an embedding that is added.
"""

import math
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from longwave import models
from longwave.chunked import in_chunks
from longwave.errors import UserError, check_positive
from longwave.models.block import Backbone, WideResidual
from longwave.models.heads import make_head
from longwave.models.model import Model
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import zero_pads
from longwave.parts.dropout import Dropout
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.spec import Spec
from longwave.state import Parts


class SequenceModel(Model):
    def __init__(
        self,
        *,
        d_model: int,
        blocks: tuple[Spec | tuple, ...],  # mixers, or groups of mixers; each becomes a residual branch
        head: Spec,  # classify, tag, regress or pair, with n_classes; masked, pretrain, pooled, none
        vocab: int | None = None,  # tokens, where the input is tokens
        d_input: int | None = None,  # numbers a frame, where it is frames
        below: Spec | None = None,  # a model of tokens whose hidden states are these frames
        types: int = 0,  # kinds of tokens that a batch may tell apart
        norm: str | Spec = "rms",  # rms, layer, gain, batch or none; Spec("rms", eps=1e-6)
        embed_norm: bool = False,  # embeddings are normed, too
        residual: WideResidual = "pre",  # where the norm stands; reversible (_wide: both streams): no activations kept
        last_norm: str | None = None,  # of the backbone's output; None: as norm says
        dropout: float = 0.0,  # of embeddings and branches, in training
        tied_dropout: bool = False,  # of a branch whole channels of a sequence are dropped, not single numbers
        init_std: float | None = None,  # of all matrices at the start; None: each mixer's own
        language: float = 0.0,  # weight of the loss of the next token, which is added to the head's
    ) -> None:
        super().__init__()
        self.language = language
        if (vocab is None) == (d_input is None):
            raise UserError("a SequenceModel reads tokens or frames: give vocab or d_input, one of them")
        check_positive(d_model=d_model, size=vocab or d_input or 0)
        self.dropout = Dropout(0.0 if tied_dropout else dropout)
        self.embed = Linear(d_input, d_model) if d_input else nn.Embedding(vocab or 0, d_model)
        self.below = None if below is None else models.create(below)
        if below and not d_input:
            raise UserError("above another model the input is its hidden states: d_input says how wide they are")
        self.types = nn.Embedding(types, d_model) if types else None
        self.embed_norm = make_norm(norm if embed_norm else "none", d_model)
        self.backbone = Backbone(
            d_model,
            blocks=blocks,
            norm=norm,
            residual=residual,
            dropout=dropout,
            tied_dropout=tied_dropout,
            last_norm=last_norm,
            init_std=init_std,
        )
        self.head = make_head(head, self.backbone.d_out)
        if self.head.tied and self.backbone.d_out != d_model:
            raise UserError(f"the output of {residual} is wider than an embedding: the head needs tied=False")
        if self.head.tied and d_input:
            raise UserError("a tied head needs a model of tokens (vocab): it shares the matrix that embeds them")
        if language and (d_input or not self.backbone.causal or self.head.pairs):
            raise UserError("language weighs the loss of the next token: for one text of tokens (vocab), read forwards")
        for table in (self.embed, self.types):
            if isinstance(table, nn.Embedding):
                nn.init.normal_(table.weight, std=init_std or 1 / math.sqrt(d_model))

    def init_state(self, batch: int, **given: Any) -> Parts:
        if self.below is not None:
            raise UserError("above another model whole sequences are read at once: there is no state")
        return Parts((self.backbone.init_state(batch, **given), self.head.init_state(batch)))

    def hidden(
        self,
        x: Shaped[Tensor, "B T ..."],
        state: Any = None,
        lengths: Int[Tensor, " B"] | None = None,
        dt: float | Tensor | None = None,
        types: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Any]:
        if self.below is not None:
            x, _ = self.below.hidden(x, None, lengths)
        h = self.embed(zero_pads(x, lengths)).to(self.embed.weight.dtype)  # of autocast's halves no residual stream
        if self.types is not None:
            h = h + (self.types.weight[0] if types is None else self.types(zero_pads(types, lengths)))
        elif types is not None:
            raise UserError("this model knows no types of tokens: types=2 makes one that tells two sentences apart")
        return self.backbone(self.dropout(self.embed_norm(h, None, lengths)), state, lengths, dt)

    def forward(
        self,
        x: Shaped[Tensor, "B T ..."],
        state: Parts | None = None,
        lengths: Int[Tensor, "B ..."] | None = None,
        dt: float | Tensor | None = None,
        types: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Any, Parts | None]:
        x, lengths = self._rows(x, lengths)
        below, above = (None, None) if state is None else state.parts
        h, below = self.hidden(x, below, lengths, dt, types)
        answer, above = self.head(h, above, lengths, **self.embedded())
        return answer, None if state is None else Parts((below, above))

    def loss(
        self,
        x: Tensor,
        target: Any,
        lengths: Tensor | None = None,
        dt: float | Tensor | None = None,
        types: Tensor | None = None,
        *,
        chunk: int | None = None,
        **how: Any,
    ) -> Tensor:
        """The head's loss; with `chunk`, never more than the activations of so many tokens are held."""
        x, lengths = self._rows(x, lengths)
        if chunk is None or x.shape[1] <= chunk:
            return self._judge(self.hidden(x, None, lengths, dt, types)[0], x, target, lengths, **how)
        by_token = dt if isinstance(dt, Tensor) and dt.ndim == 2 else None

        def piece(
            x: Tensor, dt_here: Tensor | None, types: Tensor | None, state: Any, lengths: Tensor | None
        ) -> tuple[Tensor, Any]:
            return self.hidden(x, state, lengths, dt if by_token is None else dt_here, types)

        start = self.backbone.init_state(len(x))
        h, _ = in_chunks(self, piece, (x, by_token, types), start, lengths, chunk=chunk)
        return self._judge(h, x, target, lengths, **how)

    def _judge(self, h: Tensor, x: Tensor, target: Any, lengths: Tensor | None, **how: Any) -> Tensor:
        lost = self.head.loss(h, target, lengths, **how, **self.embedded())
        if not self.language:
            return lost
        return lost + self.language * self._next(h, x, lengths, how.get("reduction", "mean"))

    def _next(self, h: Tensor, tokens: Tensor, lengths: Tensor | None, reduction: str) -> Tensor:
        """Of the next token, by the matrix that embeds tokens: a row's mean (Radford et al. 2018, eq. 5)."""
        target = F.pad(tokens[:, 1:], (0, 1), value=IGNORE)
        target = target if lengths is None else zero_pads(target, (lengths - 1).clamp_min(0), fill=IGNORE)
        lost = cross_entropy(h, self.embed.weight, target, reduction="none")
        rows = lost.sum(1) / (target != IGNORE).sum(1).clamp_min(1)
        return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()

    def _rows(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Two sequences that a head looks at together, [B, 2, T ...], are rows of their own below it."""
        if not self.head.pairs:
            return x, lengths
        if x.shape[1] != 2:
            raise UserError(f"this model compares two sequences, x[B, 2, T]; it was given {list(x.shape)}")
        return x.flatten(0, 1), None if lengths is None else lengths.flatten()

    def embedded(self) -> dict[str, Tensor]:
        """The matrix that embeds tokens, for a head that shares it."""
        return {"embedded": self.embed.weight} if self.head.tied and isinstance(self.embed, nn.Embedding) else {}
