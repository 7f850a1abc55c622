"""Text into text by an encoder and a decoder: the likeliest continuations that beam search finds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from longwave.data.tokens import Pieces, tokens_of
from longwave.errors import UserError
from longwave.generate.beam import Rule, beam_search
from longwave.models.seq2seq import Seq2Seq

ROWS = 64  # sentences searched at once


def translate(
    model: Seq2Seq,
    text: str | Sequence[str],
    *,
    tokens: Pieces | None = None,  # None: those that lie beside the model
    beams: int = 4,
    length_penalty: float = 1.0,
    rule: Rule = "power",
    coverage: float = 0.0,
    max_tokens: int | None = None,  # None: twice as many as the source has, and 10
) -> Any:
    """A text gives a text, several give a list. Sentences of about the same length are searched together."""
    tokens = tokens or _beside(model)
    sources = [tokens.prompt(each) for each in ([text] if isinstance(text, str) else text)]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    said: list[str] = [""] * len(sources)
    was_training = model.training
    model.eval()
    try:
        for first in range(0, len(order), ROWS):
            some = order[first : first + ROWS]
            best = search(model, [sources[i] for i in some], tokens, max_tokens=max_tokens, beams=beams,
                          length_penalty=length_penalty, rule=rule, coverage=coverage)  # fmt: skip
            for i, found in zip(some, best, strict=True):
                said[i] = tokens.decode([token for token in found if token not in tokens.ends])
    finally:
        model.train(was_training)
    return said[0].strip() if isinstance(text, str) else [each.strip() for each in said]


@torch.no_grad()
def search(
    model: Seq2Seq, sources: Sequence[Sequence[int]], tokens: Pieces, *, max_tokens: int | None, **how: Any
) -> list[list[int]]:
    """The best translation of each source, in tokens."""
    if tokens.start is None:
        raise UserError("this tokenizer does not say what begins a translation: decoder_start_token_id in "
                        "generation_config.json beside it does")  # fmt: skip
    size = (model.embed_source or model.embed).num_embeddings
    if not all(0 <= token < size for source in sources for token in source):
        raise UserError(f"the tokenizer has tokens that the model, of {size}, does not know")
    source, lengths = padded(sources)
    device = model.out.device
    state = model.init_state(source.to(device), lengths.to(device))
    start = torch.full((len(sources), 1), tokens.start, device=device)
    longest = max_tokens or 2 * source.shape[1] + 10
    found = beam_search(model, start, state, end=sorted(tokens.ends), max_tokens=longest, hasty=True, **how)
    return [row[0].tokens for row in found]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of tokens side by side, zeros behind them, and the length of each."""
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]), lengths


def _beside(model: Seq2Seq) -> Pieces:
    tokens = tokens_of(model.home)
    if not isinstance(tokens, Pieces):
        raise UserError(f"there is no tokenizer.json in {model.home}, so this model takes no text")
    return tokens
