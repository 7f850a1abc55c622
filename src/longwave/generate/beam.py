"""Beam search: of all continuations, keep the likeliest few of each length, and give the best of those that ended.

    score(y) = log p(y | what was given) / |y|^length_penalty        |y| counts the end

The search goes on until no open continuation can beat the finished ones. Log-probabilities only fall, so the best an
open one can reach is its score now, over the greatest length where the penalty is positive. (`hasty` assumes that it
ends where it stands, as transformers does: sooner done, and sometimes a better one is missed.)

Wu et al. 2016, section 7; with enough beams the search is exhaustive.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from longwave.errors import check_positive
from longwave.models.model import Model
from longwave.ops.precision import wide
from longwave.ops.ragged import last_tokens


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # the end is one of them, where it was reached
    score: float


@torch.no_grad()
def beam_search(
    model: Model,
    tokens: Int[Tensor, "B T"],
    state: Any,
    lengths: Int[Tensor, " B"] | None = None,
    *,
    end: int | Sequence[int],  # tokens that end a continuation
    beams: int = 4,  # continuations kept a row
    max_tokens: int = 100,  # where every continuation ends
    length_penalty: float = 1.0,  # above 0 longer ones are favoured
    hasty: bool = False,  # stop as soon as transformers does
) -> list[list[Hypothesis]]:
    """The finished continuations of each row, the best first. `tokens` are read first: a prompt, or the beginning of a
    target where `state` is that of an encoder's source.
    """
    check_positive(beams=beams, max_tokens=max_tokens)
    ends = torch.tensor([end] if isinstance(end, int) else list(end), device=tokens.device)
    logits, state = model(tokens, state, lengths)
    rows = [_Row(beams, max_tokens, length_penalty, hasty) for _ in tokens]
    active = list(rows)
    each = torch.arange(len(rows), device=tokens.device).repeat_interleave(beams)
    logits, state = last_tokens(logits, 1, lengths)[:, 0][each], state.rows(each)
    scores = wide(logits).new_full((len(rows), beams), -math.inf)
    scores[:, 0] = 0.0  # the beams of a row are still one
    said = tokens.new_zeros(len(rows), beams, 0)
    for n in range(1, max_tokens + 1):
        vocab = logits.shape[-1]
        total = (scores.view(-1, 1) + wide(logits).log_softmax(-1)).view(len(active), beams * vocab)
        best, at = total.topk(min((1 + len(ends)) * beams, beams * vocab))  # so many that as many as beams go on
        said = torch.cat([_pick(said, at // vocab), (at % vocab)[..., None]], -1)
        ended = torch.isin(said[..., -1], ends) if n < max_tokens else torch.ones_like(best, dtype=torch.bool)
        scores, keep = best.masked_fill(ended, -math.inf).topk(beams)
        for i, row in enumerate(active):
            row.add(said[i], best[i], ended[i], n)
        going = [i for i, row in enumerate(active) if not row.done(scores[i, 0].item(), n)]
        if not going:
            break
        on = torch.tensor(going, device=tokens.device)
        beam = at.gather(1, keep)[on] // vocab
        said, scores, active = _pick(said, keep)[on], scores[on], [active[i] for i in going]
        state = state.rows((on[:, None] * beams + beam).flatten())
        logits, state = model(said[..., -1].reshape(-1, 1), state)
        logits = logits[:, 0]
    return [row.found for row in rows]


class _Row:
    """The finished continuations of one row, the best first."""

    def __init__(self, beams: int, max_tokens: int, length_penalty: float, hasty: bool) -> None:
        self.beams, self.penalty = beams, length_penalty
        self.longest = None if hasty or length_penalty <= 0 else max_tokens
        self.found: list[Hypothesis] = []

    def add(self, said: Tensor, scores: Tensor, ended: Tensor, length: int) -> None:
        """Of the candidates, best first, as many as beams count."""
        for i in ended[: self.beams].nonzero()[:, 0].tolist():
            if scores[i] > -math.inf:
                self.found.append(Hypothesis(said[i].tolist(), scores[i].item() / length**self.penalty))
        self.found = sorted(self.found, key=lambda each: -each.score)[: self.beams]

    def done(self, best: float, length: int) -> bool:
        """Whether no open continuation can be among the best, the best open one having this log-probability."""
        if best == -math.inf:
            return True
        reach = best / (self.longest or length) ** self.penalty
        return len(self.found) == self.beams and reach <= self.found[-1].score


def _pick(said: Tensor, at: Tensor) -> Tensor:
    return said.gather(1, at[..., None].expand(-1, -1, said.shape[2]))
