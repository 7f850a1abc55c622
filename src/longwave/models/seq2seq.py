"""From one sequence to another: an encoder reads the source once, a decoder looks it up before every token it adds.

    state = model.init_state(source, lengths)        the encoder runs here, and nowhere else
    logits, state = model(tokens, state)             the one law, over the target

What the encoder read is in the decoder's state, so that decoding, beam search and saved states are those of any model.
The encoder is a stack of mixers over tokens, or a model with an `encode` of its own: a ResNet, whose grid is looked up,
a ViT, or a model of sound. A decoder that never looks back begins with the state that the encoder ended with: then all
that is known of a source went through that state, and the two are built alike. A target begins with a token that means
the beginning and ends with one that means the end.
"""

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from longwave import models
from longwave.errors import UserError, check_positive
from longwave.mixer import Mixer
from longwave.models.block import Backbone, Branch, Residual, Stack
from longwave.models.density import check_rows, draw_tokens
from longwave.models.model import Model
from longwave.ops.linear import linear
from longwave.ops.loss import IGNORE, cross_entropy
from longwave.ops.ragged import zero_pads
from longwave.parts.dropout import Dropout
from longwave.record import Tape
from longwave.spec import Spec
from longwave.state import Parts, State

Memory = Float[Tensor, "B S M"]


class Seq2Seq(Model):
    embed: nn.Embedding

    def __init__(
        self,
        *,
        d_model: int,
        encoder: tuple[Spec | tuple, ...] | Spec,  # blocks that read the source, or a model of images or sound
        decoder: tuple[Spec | tuple, ...],  # causal blocks; some look up what was read: "cross", "additive" ...
        vocab: int = 256,  # tokens of both languages; one matrix embeds them and gives the logits
        source_vocab: int | None = None,  # tokens of the source, which has a matrix of its own; None: they are one
        tied: bool = True,  # False: another matrix gives the logits
        norm: str | Spec = "layer",  # rms, layer, gain, batch or none; Spec("rms", eps=1e-6)
        residual: Residual = "post",  # where the norm stands
        dropout: float = 0.0,  # of embeddings and branches, in training
        scaled: bool = True,  # embeddings times the square root of the width
        bias: bool = False,  # one a token, added to the logits
        init_std: float | None = None,  # of all matrices at the start; None: each mixer's own
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, vocab=vocab)
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.dropout = Dropout(dropout)
        self.embed = nn.Embedding(vocab, d_model)
        self.embed_source = nn.Embedding(source_vocab, d_model) if source_vocab else None
        self.head = nn.Parameter(torch.empty(vocab, d_model)) if not tied else None
        how: dict[str, Any] = dict(norm=norm, residual=residual, dropout=dropout, init_std=init_std)
        self.encoder: Model | Backbone = (
            models.create(encoder) if isinstance(encoder, Spec) else Backbone(d_model, blocks=encoder, **how)
        )
        self.decoder = Backbone(d_model, blocks=decoder, **how)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        if not self.decoder.causal:
            raise UserError("a decoder reads the target from left to right: its mixers must be causal")
        looking = [part.mixer for block in self.decoder.parts() for part in block.parts() if _looks_up(part)]
        self.looks_up = bool(looking)
        if not looking and (isinstance(encoder, Spec) or tuple(encoder) != tuple(decoder)):
            raise UserError('no mixer of the decoder looks the source up ("cross", "additive" and "unfold" do), so it '
                            "begins with the encoder's state: the blocks of both must be the same")  # fmt: skip
        width = getattr(self.encoder, "d_model", d_model)
        for mixer in looking:
            if mixer.d_memory != width:
                raise UserError(f"the encoder gives {width} features, a mixer of the decoder looks up "
                                f"d_memory={mixer.d_memory}")  # fmt: skip
        sources = [] if self.embed_source is None else [self.embed_source.weight]
        for matrix in (self.embed.weight, *sources, *([] if self.head is None else [self.head])):
            nn.init.normal_(matrix, std=init_std or 1 / math.sqrt(d_model))

    @property
    def causal(self) -> bool:
        return self.decoder.causal

    @property
    def out(self) -> Float[Tensor, "P D"]:
        """The output matrix: logits are its products with the hidden states."""
        return self.embed.weight if self.head is None else self.head

    def encode(self, source: Shaped[Tensor, "B ..."], lengths: Int[Tensor, " B"] | None = None) -> Memory:
        """What the decoder looks up: features of every token of the source, or of every place of an image."""
        if isinstance(self.encoder, Model):
            return self.encoder.encode(source, lengths)
        return self.encoder(self._embed(source, lengths, self.embed_source), None, lengths)[0]

    def init_state(  # type: ignore[override]
        self, source: Shaped[Tensor, "B ..."], lengths: Int[Tensor, " B"] | None = None, **given: Any
    ) -> Parts:
        """Reads the source; `lengths` are the sources'."""
        if not self.looks_up:
            start = self.encoder.init_state(len(source), **given)
            return self.encoder(self._embed(source, lengths, self.embed_source), start, lengths)[1]
        memory = self.encode(source, lengths)
        return self.decoder.init_state(len(source), memory=memory, lengths=self._places(lengths), **given)

    def hidden(
        self, tokens: Int[Tensor, "B T"], state: Any = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Any]:
        if state is None:
            raise UserError("a decoder needs what the encoder read: pass init_state(source, lengths) as its state")
        return self.decoder(self._embed(tokens, lengths), state, lengths)

    def forward(
        self, tokens: Int[Tensor, "B T"], state: Parts | None = None, lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T P"], Parts | None]:
        """The logits of the next token of the target, after every token."""
        h, state = self.hidden(tokens, state, lengths)
        return linear(h, self.out, self.bias), state

    def alignment(self, seen: Tape, state: Parts) -> Float[Tensor, "B T S"]:
        """How much of each token of the source was looked at for each of the target, as recorded in one call of this
        model that ended with `state`: the mean over layers and heads; NaN where a source has ended.
        """
        found = []
        for i, (block, kept) in enumerate(zip(self.decoder.parts(), state.parts, strict=True)):
            for j, (part, memory) in enumerate(zip(block.parts(), kept.parts, strict=True)):  # type: ignore[union-attr]
                weights = seen.get(f"decoder.{i}.{j}.mixer/weights")
                if _looks_up(part) and weights is not None:
                    real = torch.arange(weights.shape[-1], device=weights.device) < memory.n[:, None]
                    found.append(weights.mean(1).masked_fill(~real[:, None], math.nan))
        if not found:
            raise UserError('this decoder does not weigh its source, so nothing is aligned ("cross", "additive" do)')
        return torch.stack(found).mean(0)

    def loss(
        self,
        source: Shaped[Tensor, "B ..."],
        target: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        **how: Any,
    ) -> Tensor:
        """Cross-entropy of the target's tokens after the first, each given the true ones before it, all at once; `how`:
        smoothing, convention, reduction.
        """
        wanted, ends = target[:, 1:], None
        if target_lengths is not None:
            ends = (target_lengths - 1).clamp_min(0)
            wanted = zero_pads(wanted, ends, fill=IGNORE)
        if self.looks_up:
            start = _only_memory(self.decoder, len(source), self.encode(source, lengths), self._places(lengths))
        else:
            start = self.init_state(source, lengths)
        h, _ = self.hidden(target[:, :-1], start, ends)
        return cross_entropy(h, self.out, wanted, self.bias, **how)

    def log_prob(
        self,
        target: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        *,
        given: Shaped[Tensor, "B ..."],
        given_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """log p(target after its first token | the source given), a row."""
        return -self.loss(given, target, given_lengths, lengths, reduction="none").sum(1)

    @torch.no_grad()
    def sample(
        self,
        count: int = 1,
        *,
        length: int,
        given: Shaped[Tensor, "B ..."],
        given_lengths: Int[Tensor, " B"] | None = None,
        start: int = 0,
        end: int | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Int[Tensor, "C T"], Int[Tensor, " C"]]:
        """`count` targets of the source given, or of one a row, and how many tokens each has: `start` and `length`
        more, or as many as there are up to `end`.
        """
        check_rows(count, given)
        first = torch.full((len(given), 1), start, device=self.out.device)
        logits, state = self(first, self.init_state(given, given_lengths))
        each = torch.arange(count, device=first.device) % len(given)
        said, lengths = draw_tokens(self, logits[each, 0], state.rows(each), length=length, end=end,
                                    generator=generator)  # fmt: skip
        return F.pad(said, (1, 0), value=start), lengths + 1

    def _places(self, lengths: Tensor | None) -> Tensor | None:
        return self.encoder.places(lengths) if isinstance(self.encoder, Model) else lengths

    def _embed(self, tokens: Tensor, lengths: Tensor | None, embed: nn.Embedding | None = None) -> Tensor:
        return self.dropout(self.scale * (embed or self.embed)(zero_pads(tokens, lengths)))


def _looks_up(branch: Branch) -> bool:
    return "memory" in inspect.signature(branch.mixer.init_state).parameters


def _only_memory(part: Mixer, batch: int, memory: Tensor, lengths: Tensor | None) -> State | None:
    """The state of training: the memory where it is looked up; all else starts from the beginning and keeps nothing."""
    if isinstance(part, Stack):
        return Parts(tuple(_only_memory(each, batch, memory, lengths) for each in part.parts()))
    assert isinstance(part, Branch)
    return part.init_state(batch, memory=memory, lengths=lengths) if _looks_up(part) else None
