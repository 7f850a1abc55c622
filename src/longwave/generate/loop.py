"""The one generation loop: prefill the prompts in chunks, then a token at a time, for every model that has a state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from longwave.data.tokens import Bytes, Tokens, tokens_of
from longwave.errors import UserError
from longwave.generate.sampling import Sampling, sample
from longwave.models.language_model import LanguageModel
from longwave.state import State

Prompt = str | Sequence[int]


@dataclass
class Row:
    """A sequence being generated: what it was asked, what it has said, and whether it is done."""

    prompt: list[int]
    generator: torch.Generator
    place: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""  # decoded so far; text that may yet turn out to be a stop string is not given out
    given: int = 0  # characters given out
    done: bool = False


@torch.no_grad()
def stream(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int | Sequence[int] | None = None,
    stop: Sequence[str] = (),
    chunk: int = 512,
) -> Iterator[tuple[int, str | int]]:
    """Yields (row, piece of text), or (row, token) where the prompts are numbers, as soon as each is certain."""
    words = all(isinstance(prompt, str) for prompt in prompts)
    if not words and any(isinstance(prompt, str) for prompt in prompts):
        raise UserError("prompts are all texts or all lists of tokens")
    tokens = tokens_of(model.home)
    if words and isinstance(tokens, Bytes) and len(model.out) != tokens.size:
        raise UserError(f"this model has {len(model.out)} tokens, not bytes: give the prompt as a list of tokens")
    if words and len(model.out) < tokens.size:
        raise UserError(f"the tokenizer in {model.home} has {tokens.size} tokens, the model {len(model.out)}")
    rows = _rows(model, prompts, tokens, seed)
    decoders = [tokens.decoder(row.prompt) for row in rows]
    was_training = model.training
    model.eval()
    try:
        logits, state = _prefill(model, [row.prompt for row in rows], chunk)
        seen = _seen(rows, len(model.out)).to(logits.device) if sampling.repetition_penalty != 1 else None
        active = rows
        for step in range(max_tokens):
            drawn = sample(logits, sampling, [row.generator for row in active], seen)
            for row, token in zip(active, drawn.tolist(), strict=True):
                last = step == max_tokens - 1
                if not words:
                    row.tokens.append(token)
                    yield row.place, token
                    continue
                row.done = token in tokens.ends
                piece = decoders[row.place].finish() if row.done else decoders[row.place].add(token)
                out = _take(row, piece + (decoders[row.place].finish() if last and not row.done else ""), stop, last)
                if out:
                    yield row.place, out
            stay = [i for i, row in enumerate(active) if not row.done]
            if not stay or step == max_tokens - 1:
                break
            if len(stay) < len(active):
                active, drawn, state = [active[i] for i in stay], drawn[stay], state.rows(stay)
                seen = None if seen is None else seen[stay]
            if seen is not None:
                seen[torch.arange(len(active)), drawn] = True
            logits, state = _next(model, drawn[:, None], state)
    finally:
        model.train(was_training)


def generate(
    model: LanguageModel,
    prompt: Prompt | Sequence[Prompt],
    *,
    max_tokens: int = 200,
    temperature: float = 1.0,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] = (),
    chunk: int = 512,
    **filters: Any,
) -> Any:
    """Continue a prompt, or several at once: texts give texts, lists of tokens give lists of tokens.

    `filters` are top_k, top_p, min_p and repetition_penalty (see `Sampling`). `seed` is one for all rows, or one a row;
    a row's draw depends on its own seed alone. Generation ends at `max_tokens`, at a `stop` string (which is left out),
    or at the end of the document. A prompt is read in pieces of `chunk` tokens.
    """
    one = isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], int))
    prompts: Any = [prompt] if one else prompt
    sampling = Sampling(temperature=temperature, **filters)
    stops = [stop] if isinstance(stop, str) else list(stop)
    pieces: list[list[Any]] = [[] for _ in prompts]
    for place, piece in stream(
        model, prompts, max_tokens=max_tokens, sampling=sampling, seed=seed, stop=stops, chunk=chunk
    ):
        pieces[place].append(piece)
    done = ["".join(row) if isinstance(asked, str) else row for row, asked in zip(pieces, prompts, strict=True)]
    return done[0] if one else done


def _rows(model: LanguageModel, prompts: Sequence[Prompt], tokens: Tokens, seed: Any) -> list[Row]:
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(prompts)
    if len(seeds) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many seeds, got {len(seeds)}")
    rows = []
    for place, (prompt, own) in enumerate(zip(prompts, seeds, strict=True)):
        asked = tokens.prompt(prompt) if isinstance(prompt, str) else [int(t) for t in prompt]
        if not asked:
            raise UserError("an empty list of tokens is no prompt: give at least one token")
        if not all(0 <= t < len(model.out) for t in asked):
            raise UserError(f"tokens are numbers from 0 to {len(model.out) - 1}, got {max(asked, key=abs)}")
        generator = torch.Generator()
        generator.manual_seed(own) if own is not None else generator.seed()
        rows.append(Row(asked, generator, place))
    return rows


def _prefill(model: LanguageModel, prompts: list[list[int]], chunk: int) -> tuple[Tensor, State]:
    """Reads ragged prompts, `chunk` tokens at a time; the logits after each row's own last token."""
    device = model.out.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    state: Any = model.init_state(len(prompts))
    last: Tensor | None = None
    for start in range(0, int(lengths.max()), chunk):
        pieces = [prompt[start : start + chunk] for prompt in prompts]
        width = max(map(len, pieces))
        tokens = torch.tensor([piece + [0] * (width - len(piece)) for piece in pieces], device=device)
        here = (lengths - start).clamp(0, width)
        h, state = model.hidden(tokens, state, here)
        ends = h[torch.arange(len(h), device=device), (here - 1).clamp_min(0)]
        last = ends if last is None else torch.where((here > 0)[:, None], ends, last)
    assert last is not None
    return last @ model.out.T, state


def _next(model: LanguageModel, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    h, state = model.hidden(tokens, state)
    return h[:, -1] @ model.out.T, state


def _seen(rows: list[Row], vocab: int) -> Tensor:
    seen = torch.zeros(len(rows), vocab, dtype=torch.bool)
    for i, row in enumerate(rows):
        seen[i, row.prompt] = True
    return seen


def _take(row: Row, piece: str, stop: Sequence[str], last: bool) -> str:
    """Adds text to a row; what can be given out: all but an end that might begin a stop string."""
    row.text += piece
    found = [at for s in stop if (at := row.text.find(s, max(0, row.given - len(s)))) >= 0]
    if found:
        row.done, row.text = True, row.text[: min(found)]
    hold = 0
    if not (row.done or last):
        hold = max((n for s in stop for n in range(1, len(s)) if row.text.endswith(s[:n])), default=0)
    upto = max(row.given, len(row.text) - hold)
    out, row.given = row.text[row.given : upto], upto
    return out
