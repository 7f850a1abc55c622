"""From logits to a token: pure functions on logits [B, P], and the draw.

What a filter rules out becomes -inf. Every row draws with a generator of its own, so batch mates change nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longwave.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    temperature: float = 1.0  # 0: always the likeliest token; below 1: sharper, above: flatter
    top_k: int | None = None  # only so many of the likeliest tokens
    top_p: float | None = None  # only the likeliest tokens that together have this probability
    min_p: float | None = None  # only tokens at least so likely, in units of the likeliest
    repetition_penalty: float = 1.0  # above 1: tokens that were there before are less likely

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.repetition_penalty <= 0:
            raise UserError("temperature cannot be negative, and repetition_penalty must be positive")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be at least 1, got {self.top_k}")
        for name, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            if value is not None and not 0 < value <= 1:
                raise UserError(f"{name} must lie above 0 and at most at 1, got {value}")


def penalise(logits: Float[Tensor, "B P"], seen: Bool[Tensor, "B P"], penalty: float) -> Float[Tensor, "B P"]:
    """Logits of seen tokens divided by the penalty where positive, multiplied where negative (Keskar et al. 2019)."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_top_k(logits: Float[Tensor, "B P"], k: int) -> Float[Tensor, "B P"]:
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Float[Tensor, "B P"], p: float) -> Float[Tensor, "B P"]:
    """The smallest set of likeliest tokens whose probabilities reach p (Holtzman et al. 2020)."""
    ordered, order = logits.sort(descending=True)
    chance = ordered.softmax(-1)
    beyond = chance.cumsum(-1) - chance >= p
    return logits.masked_fill(beyond.gather(-1, order.argsort(-1)), -torch.inf)


def keep_min_p(logits: Float[Tensor, "B P"], p: float) -> Float[Tensor, "B P"]:
    chance = logits.softmax(-1)
    return logits.masked_fill(chance < p * chance.amax(-1, keepdim=True), -torch.inf)


def sample(
    logits: Float[Tensor, "B P"],
    how: Sampling,
    generators: list[torch.Generator],
    seen: Bool[Tensor, "B P"] | None = None,
) -> Int[Tensor, " B"]:
    """A token a row; each row takes one number from its own generator."""
    logits = logits.double()
    if seen is not None and how.repetition_penalty != 1:
        logits = penalise(logits, seen, how.repetition_penalty)
    if how.temperature == 0:
        return logits.argmax(-1)
    logits = logits / how.temperature
    if how.top_k is not None:
        logits = keep_top_k(logits, how.top_k)
    if how.top_p is not None:
        logits = keep_top_p(logits, how.top_p)
    if how.min_p is not None:
        logits = keep_min_p(logits, how.min_p)
    drawn = torch.stack([torch.rand((), generator=g, dtype=torch.float64) for g in generators]).to(logits.device)
    reached = logits.softmax(-1).cumsum(-1)
    token = torch.searchsorted(reached, (drawn * reached[:, -1])[:, None], right=True)[:, 0]
    return token.clamp_max(logits.shape[-1] - 1)
