"""What a generative model answers: how likely something is, how likely given something else, and draws of it.

    model.log_prob(x, lengths)                                          log p(x), a row
    model.log_prob(x, lengths, given=..., given_lengths=...)            log p(x | given), a row
    x, lengths = model.sample(5000, given=..., given_lengths=...)       draws: their frequencies are those probabilities

Of a sequence without `given`, and of every target, the first token says no more than where it begins: it is not scored.
What is `given` to a language model is the text before, to an encoder and decoder the source, to a model of images their
upper rows. For filters, penalties, text and beams see `longwave.generate`.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import UserError, check_positive
from longwave.ops.precision import wide


def draw(logits: Float[Tensor, "... P"], generator: torch.Generator | None = None) -> Int[Tensor, "..."]:
    """A number for every set of logits."""
    chances = wide(logits).softmax(-1)
    return torch.multinomial(chances.flatten(0, -2), 1, generator=generator).view(logits.shape[:-1])


def check_rows(count: int, given: Tensor | None) -> None:
    check_positive(count=count)
    if given is not None and len(given) not in (1, count):
        raise UserError(f"{count} draws need one thing given, or {count} of them, got {len(given)}")


@torch.no_grad()
def draw_tokens(
    model: Any,
    logits: Float[Tensor, "B P"],
    state: Any,
    *,
    length: int,
    end: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """What follows, token after token: `length` of them, or as many as there are up to one that is `end`; and how many
    those are in each row. After the end comes more of it.
    """
    check_positive(length=length)
    said: list[Tensor] = []
    lengths = torch.full((len(logits),), length, device=logits.device)
    for n in range(1, length + 1):
        token = draw(logits, generator)
        if end is not None:
            token = torch.where(lengths < n, end, token)
            lengths = torch.where((token == end) & (lengths > n), n, lengths)
        said.append(token)
        if n == length or bool((lengths <= n).all()):
            break
        every, state = model(token[:, None], state)
        logits = every[:, 0]
    return torch.stack(said, 1), lengths
