"""Beam search: of all continuations, keep the likeliest few of each length, and give the best of those that ended.

    score(y) = log p(y | what was given) / lp(y) + coverage sum_i log min(sum_j a_ji, 1)
    lp(y) = |y|^length_penalty, or by Google's rule ((5 + |y|) / 6)^length_penalty        |y| counts the end

a_ji is how much of the source's token i was looked at for token j: what nobody looked at was not translated.

The search goes on until no open continuation can beat the finished ones. Log-probabilities only fall, so the best an
open one can reach is its score now, over the greatest length where the penalty is positive. (`hasty` assumes that it
ends where it stands, as transformers does: sooner done, and sometimes a better one is missed.)

Wu et al. 2016, section 7, eq. 14; with enough beams the search is exhaustive.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longwave.errors import UserError, check_positive
from longwave.models.model import Model
from longwave.models.seq2seq import Seq2Seq
from longwave.ops.precision import wide
from longwave.ops.ragged import last_tokens
from longwave.record import recording

Rule = Literal["power", "google"]


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
    rule: Rule = "power",  # how the length counts
    coverage: float = 0.0,  # above 0 continuations are favoured that looked at all of the source
    hasty: bool = False,  # stop as soon as transformers does
    never: Sequence[int] = (),  # tokens that no continuation has
    not_first: Sequence[int] = (),  # nor begins with
) -> list[list[Hypothesis]]:
    """The finished continuations of each row, the best first. `tokens` are read first: a prompt, or the beginning of a
    target where `state` is that of an encoder's source.
    """
    check_positive(beams=beams, max_tokens=max_tokens)
    ends = torch.tensor([end] if isinstance(end, int) else list(end), device=tokens.device)
    if not 0 <= coverage < math.inf:
        raise UserError(f"coverage must be 0 or more, got {coverage}")
    logits, state, looked = _step(model, tokens, state, lengths, coverage)
    longest = None if hasty or length_penalty <= 0 else max_tokens
    rows = [_Row(beams, longest, _Penalty(length_penalty, rule, coverage)) for _ in tokens]
    active = list(rows)
    each = torch.arange(len(rows), device=tokens.device).repeat_interleave(beams)
    logits, state, looked = logits[each], state.rows(each), looked[each]
    scores = wide(logits).new_full((len(rows), beams), -math.inf)
    scores[:, 0] = 0.0  # the beams of a row are still one
    said = tokens.new_zeros(len(rows), beams, 0)
    for n in range(1, max_tokens + 1):
        vocab = logits.shape[-1]
        likely = _without(wide(logits).log_softmax(-1), [*never, *(not_first if n == 1 else ())])
        total = (scores.view(-1, 1) + likely).view(len(active), beams * vocab)
        best, at = total.topk(min((1 + len(ends)) * beams, beams * vocab))  # so many that as many as beams go on
        said = torch.cat([_pick(said, at // vocab), (at % vocab)[..., None]], -1)
        ended = torch.isin(said[..., -1], ends) if n < max_tokens else torch.ones_like(best, dtype=torch.bool)
        scores, keep = best.masked_fill(ended, -math.inf).topk(beams)
        covered = looked.view(len(active), beams, -1)
        for i, row in enumerate(active):
            row.add(said[i], best[i], ended[i], covered[i][at[i] // vocab])
        going = [i for i, row in enumerate(active) if not row.done(scores[i, 0].item(), n)]
        if not going:
            break
        on = torch.tensor(going, device=tokens.device)
        beam = at.gather(1, keep)[on] // vocab
        said, scores, active = _pick(said, keep)[on], scores[on], [active[i] for i in going]
        each = (on[:, None] * beams + beam).flatten()
        logits, state, more = _step(model, said[..., -1].reshape(-1, 1), state.rows(each), None, coverage)
        looked = looked[each] + more
    return [row.found for row in rows]


def _step(
    model: Model, tokens: Tensor, state: Any, lengths: Tensor | None, coverage: float
) -> tuple[Tensor, Any, Tensor]:
    """The last logits of each row, and how much of each token of the source was looked at for them, where it counts."""
    if not coverage:
        logits, state = model(tokens, state, lengths)
        return last_tokens(logits, 1, lengths)[:, 0], state, logits.new_zeros(len(tokens), 0)
    if not isinstance(model, Seq2Seq):
        raise UserError(f"coverage is of a source that is looked up: a {type(model).__name__} has none")
    with recording(model) as seen:
        logits, state = model(tokens, state, lengths)
    weights = last_tokens(model.alignment(seen, state), 1, lengths)[:, 0]
    return last_tokens(logits, 1, lengths)[:, 0], state, weights


@dataclass(frozen=True)
class _Penalty:
    power: float
    rule: Rule
    coverage: float

    def __call__(self, score: float, length: int, looked: Tensor | None = None) -> float:
        """`looked` is NaN where there is no source; without it the score is what the best coverage gives."""
        score /= (length if self.rule == "power" else (5 + length) / 6) ** self.power
        if looked is None or not self.coverage:
            return score
        covered = looked[~looked.isnan()].clamp(torch.finfo(looked.dtype).tiny, 1)
        return score + self.coverage * covered.log().sum().item()


class _Row:
    """The finished continuations of one row, the best first."""

    def __init__(self, beams: int, longest: int | None, penalty: _Penalty) -> None:
        self.beams, self.longest, self.penalty = beams, longest, penalty
        self.found: list[Hypothesis] = []

    def add(self, said: Tensor, scores: Tensor, ended: Tensor, looked: Tensor) -> None:
        """Of the candidates, best first, as many as beams count."""
        for i in ended[: self.beams].nonzero()[:, 0].tolist():
            if scores[i] > -math.inf:
                score = self.penalty(scores[i].item(), said.shape[1], looked[i])
                self.found.append(Hypothesis(said[i].tolist(), score))
        self.found = sorted(self.found, key=lambda each: -each.score)[: self.beams]

    def done(self, best: float, length: int) -> bool:
        """Whether no open continuation can be among the best, the best open one having this log-probability."""
        if best == -math.inf:
            return True
        reach = self.penalty(best, self.longest or length)
        return len(self.found) == self.beams and reach <= self.found[-1].score


def _without(likely: Tensor, barred: Sequence[int]) -> Tensor:
    """The others stay as likely as they were."""
    if not barred:
        return likely
    return likely.index_fill(1, torch.tensor(barred, device=likely.device), -math.inf)


def _pick(said: Tensor, at: Tensor) -> Tensor:
    return said.gather(1, at[..., None].expand(-1, -1, said.shape[2]))
