"""A language model: an embedding, a backbone of any causal mixers, and the logits of the next token."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.chunked import in_chunks
from longwave.errors import UserError, check_positive
from longwave.models.block import Backbone, WideResidual
from longwave.models.density import check_rows, draw_tokens
from longwave.models.model import Model
from longwave.ops.linear import linear
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import last_tokens, zero_pads
from longwave.parts.dropout import Dropout
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.spec import Spec
from longwave.state import Parts


class LanguageModel(Model):
    embed: nn.Embedding

    def __init__(
        self,
        *,
        d_model: int,
        blocks: tuple[Spec | tuple, ...],  # mixers, or groups of mixers; each becomes a residual branch
        vocab: int = 256,  # tokens; 256 are bytes
        norm: str | Spec = "rms",  # rms, layer, gain, batch or none; Spec("rms", eps=1e-6)
        residual: WideResidual = "pre",  # where the norm stands; reversible (_wide: both streams): no activations kept
        dropout: float = 0.0,  # of embeddings and branches, in training
        tied: bool = True,  # the embedding is also the output matrix
        embed_norm: bool = False,  # embeddings are normed, too
        init_std: float | None = 0.02,  # of all matrices at the start; None: each mixer's own
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, vocab=vocab)
        self.dropout = Dropout(dropout)
        self.embed = nn.Embedding(vocab, d_model)
        self.embed_norm = make_norm(norm if embed_norm else "none", d_model)
        self.backbone = Backbone(
            d_model, blocks=blocks, norm=norm, residual=residual, dropout=dropout, init_std=init_std
        )
        if tied and self.backbone.d_out != d_model:
            raise UserError(f"the output of {residual} is wider than an embedding: it needs tied=False")
        self.unembed = None if tied else Linear(self.backbone.d_out, vocab, bias=False)
        for weight in [self.out] if tied else [self.embed.weight, self.out]:
            nn.init.normal_(weight, std=init_std or 1 / math.sqrt(d_model))

    @property
    def out(self) -> Float[Tensor, "P D"]:
        """The output matrix: logits are its products with the hidden states."""
        return self.embed.weight if self.unembed is None else self.unembed.weight

    def init_state(self, batch: int, **given: Any) -> Parts:
        return self.backbone.init_state(batch, **given)

    def hidden(
        self, tokens: Int[Tensor, "B T"], state: Parts | None = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Parts | None]:
        x = self.dropout(self.embed_norm(self.embed(zero_pads(tokens, lengths)), None, lengths))
        return self.backbone(x, state, lengths)

    def forward(
        self, tokens: Int[Tensor, "B T"], state: Parts | None = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T P"], Parts | None]:
        """The logits of the next token, after every token."""
        h, state = self.hidden(tokens, state, lengths)
        return linear(h, self.out), state

    def loss(
        self,
        tokens: Int[Tensor, "B T"],
        target: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        *,
        chunk: int | None = None,
        reduction: str = "mean",
        **how: Any,
    ) -> Tensor:
        """Cross-entropy of `target` (-100: does not count); `how`: smoothing, convention.

        With `chunk`, never more than the activations of so many tokens are held (see `longwave.chunked`).
        """
        if lengths is not None:
            target = zero_pads(target, lengths, fill=IGNORE)
        if chunk is None or tokens.shape[1] <= chunk:
            h, _ = self.hidden(tokens, None, lengths)
            return cross_entropy(h, self.out, target, reduction=reduction, **how)

        def piece(tokens: Tensor, target: Tensor, state: Parts, lengths: Tensor | None) -> tuple[Tensor, Any]:
            h, state_after = self.hidden(tokens, state, lengths)
            each = "none" if reduction == "none" else "sum"
            return cross_entropy(h, self.out, target, reduction=each, **how), state_after

        losses, _ = in_chunks(self, piece, (tokens, target), self.init_state(len(tokens)), lengths, chunk=chunk)
        return losses / (target != IGNORE).sum().clamp_min(1) if reduction == "mean" else losses

    def log_prob(
        self,
        tokens: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        *,
        given: Int[Tensor, "B S"] | None = None,
        given_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """log p(tokens after the first | the first), a row; with a text `given` before them, log p(all tokens | it)."""
        if given is None:
            before = None if lengths is None else (lengths - 1).clamp_min(0)
            return -self.loss(tokens[:, :-1], tokens[:, 1:], before, reduction="none").sum(1)
        seen, state = self.hidden(given, self.init_state(len(given)), given_lengths)
        h = last_tokens(seen, 1, given_lengths)
        if tokens.shape[1] > 1:
            here = None if lengths is None else (lengths - 1).clamp_min(0)
            h = torch.cat([h, self.hidden(tokens[:, :-1], state, here)[0]], 1)
        wanted = tokens if lengths is None else zero_pads(tokens, lengths, fill=IGNORE)
        return -cross_entropy(h, self.out, wanted, reduction="none").sum(1)

    @torch.no_grad()
    def sample(
        self,
        count: int = 1,
        *,
        length: int,
        start: int = 0,
        end: int | None = None,
        given: Int[Tensor, "B S"] | None = None,
        given_lengths: Int[Tensor, " B"] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Int[Tensor, "C T"], Int[Tensor, " C"]]:
        """`count` rows, and how many tokens each has: `start` and `length` more, or as many as there are up to `end`;
        with a text `given`, or one a row, what comes after it.
        """
        check_rows(count, given)
        before = torch.full((1, 1), start, device=self.out.device) if given is None else given
        logits, state = self(before, self.init_state(len(before)), given_lengths)
        each = torch.arange(count, device=before.device) % len(before)
        last = last_tokens(logits, 1, given_lengths)[each, 0]
        said, lengths = draw_tokens(self, last, state.rows(each), length=length, end=end, generator=generator)
        return (said, lengths) if given is not None else (F.pad(said, (1, 0), value=start), lengths + 1)
