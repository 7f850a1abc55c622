"""A language model of both directions: one stack of layers guesses the word after each, another the word before.

    e_t = embed(x_t)        a^l = layer of the one stack, reading forwards        b^l = of the other, backwards
    logits of x_{t+1} = W a^L_t        logits of x_{t-1} = W b^L_t        features = gamma sum_l s_l [a^l, b^l]

Neither sees what it guesses. Embedding and W are shared by both. The features of a word are its embedding and all
layers, mixed by weights of the task that uses them, whose sum is 1 (Peters et al. 2018, section 3.1 and 3.2).

The input is tokens, [B, T], or words as their characters, [B, T, W], with 0 behind a word's last (see
`data.words.characters`); what is guessed are tokens in both cases.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from longwave.errors import UserError, check_positive
from longwave.mixer import reverse
from longwave.models.block import Backbone
from longwave.models.model import Model
from longwave.ops.linear import linear
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import zero_pads
from longwave.parts.characters import Characters
from longwave.parts.dropout import Dropout
from longwave.parts.linear import Linear
from longwave.parts.scalar_mix import ScalarMix
from longwave.spec import Spec

MARKED = 260  # the characters of `data.words`


class BiLM(Model):
    causal = False

    def __init__(
        self,
        *,
        d_model: int,  # width of each direction
        blocks: tuple[Spec | tuple, ...],  # layers of each direction: causal mixers
        vocab: int,  # tokens that are guessed; 256 are bytes
        guesses: bool = True,  # False: features alone, without the output matrix
        filters: tuple[tuple[int, int], ...] = (),  # widths of convolutions over a word's characters, and how many
        d_char: int = 16,  # width of a character
        highways: int = 2,  # layers above the convolutions
        dropout: float = 0.0,  # of embeddings and layers, in training
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, vocab=vocab)
        self.dropout = Dropout(dropout)
        self.embed = (
            Characters(d_model, n_chars=MARKED, d_char=d_char, filters=filters, highways=highways) if filters
            else nn.Embedding(vocab, d_model)
        )  # fmt: skip
        how: dict[str, Any] = dict(blocks=blocks, norm="none", dropout=dropout)
        self.ahead, self.back = Backbone(d_model, **how), Backbone(d_model, **how)
        if not self.ahead.causal:
            raise UserError("a layer that sees the whole sequence would see what it is to guess: take a causal mixer")
        self.mix = ScalarMix(1 + len(blocks))
        self.out = Linear(d_model, vocab) if guesses else None
        if isinstance(self.embed, nn.Embedding):
            nn.init.normal_(self.embed.weight, std=1 / math.sqrt(d_model))

    def layers(self, x: Int[Tensor, "B T ..."], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T L C"]:
        """The embedding twice, then what each layer of the two directions makes of it; the two side by side."""
        if x.ndim != (3 if isinstance(self.embed, Characters) else 2):
            wanted = "words as characters, [B, T, W]" if x.ndim == 2 else "tokens, [B, T]"
            raise UserError(f"this model reads {wanted}, got {list(x.shape)}")
        ahead = self.dropout(self.embed(zero_pads(x, lengths)))
        back, found = reverse(ahead, lengths), [torch.cat([ahead, ahead], -1)]
        for one, other in zip(self.ahead.parts(), self.back.parts(), strict=True):
            ahead, back = one(ahead, None, lengths)[0], other(back, None, lengths)[0]
            found.append(torch.cat([ahead, reverse(back, lengths)], -1))
        return torch.stack(found, 2)

    def hidden(
        self, x: Int[Tensor, "B T ..."], state: Any = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T C"], None]:
        """The features of each word, of both directions: twice as wide as one."""
        self._check(state)
        return self.mix(self.layers(x, lengths)), None

    def forward(
        self, x: Int[Tensor, "B T ..."], state: Any = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Tensor, None]:
        """The logits of the word after and the word before each, [B, T, 2, P]; without an output matrix, features."""
        self._check(state)
        if self.out is None:
            return self.hidden(x, state, lengths)
        return linear(self._sides(x, lengths), self.out.weight, self.out.bias), None

    def loss(
        self, x: Int[Tensor, "B T ..."], words: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None = None,
        *, chunk: int | None = None, **how: Any,
    ) -> Tensor:  # fmt: skip
        """`words` are the tokens that stand at x's own places (-100: is not guessed). The mean over both directions."""
        if self.out is None:
            raise UserError("a model without an output matrix guesses nothing: guesses=True gives it one")
        self._check(chunk)
        words = zero_pads(words, lengths, fill=IGNORE) if lengths is not None else words
        beside = F.pad(words, (1, 1), value=IGNORE)
        target = torch.stack([beside[:, 2:], beside[:, :-2]], 2)
        target = target if lengths is None else zero_pads(target, lengths, fill=IGNORE)
        return cross_entropy(self._sides(x, lengths), self.out.weight, target, self.out.bias, **how)

    def _check(self, cut: Any) -> None:
        if cut is not None:
            raise UserError("a model of both directions sees whole texts at once: it has no state and cannot be cut")

    def _sides(self, x: Tensor, lengths: Tensor | None) -> Float[Tensor, "B T 2 D"]:
        return self.layers(x, lengths)[:, :, -1].unflatten(-1, (2, -1))
