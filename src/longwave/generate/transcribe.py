"""Speech into text by an encoder and a decoder, a window of at most half a minute after the other, each cut where it is
quiet, so that no word is torn.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longwave.data.audio import Floats, log_mel, resample
from longwave.data.tokens import Pieces, tokens_of
from longwave.errors import UserError, check_positive, nearest
from longwave.generate.beam import beam_search
from longwave.models.audio_model import AudioModel
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.config import read_config

RATE, HOP = 16000, 160  # samples a second, and of a frame
SLOWEST = 1000  # samples a second
SEARCHED = 0.3  # share of a window, its end, in which the quiet place is looked for
QUIET = 0.2  # seconds
POSITIONS = 448  # of a decoder whose positions have no end


def transcribe(
    model: Seq2Seq,
    sound: Floats,
    rate: int = RATE,
    *,
    language: str | None = None,  # its code, such as en; None: found out, window by window
    to_english: bool = False,  # translate
    beams: int = 1,  # continuations that the search keeps; 1: the likeliest token each time
    max_tokens: int | None = None,  # a window; None: half as many as the decoder has positions
) -> Iterator[str]:
    """The text of each window of samples from -1 to 1, as it is found; of digital silence there is none."""
    if not isinstance(model.encoder, AudioModel):
        raise UserError(f"this model reads no sound: its encoder is a {type(model.encoder).__name__}")
    check_positive(beams=beams, max_tokens=1 if max_tokens is None else max_tokens)
    if rate < SLOWEST:
        raise UserError(f"sound of {rate} samples a second holds no speech: {SLOWEST} are the fewest")
    if not len(sound):
        raise UserError("there is no sound: the recording has no samples")
    tokens, rules = _beside(model)
    begin = Begin(rules, tokens, language, to_english)
    if not all(0 <= token < len(model.out) for token in begin.named()):
        raise UserError(f"generation_config.json names tokens that the model, of {len(model.out)}, does not know")
    was_training = model.training
    model.eval()
    try:
        for window in windows(sound, rate, 2 * model.encoder.longest * HOP * rate // RATE):
            if window.any():
                said = _search(model, features(model.encoder, window, rate), begin, beams, max_tokens)
                yield tokens.decode([token for token in said if token not in tokens.ends]).strip()
    finally:
        model.train(was_training)


def features(encoder: AudioModel, sound: Floats, rate: int) -> Tensor:
    """What the encoder hears of one window: it was trained on full ones, with silence behind the sound."""
    longest = 2 * encoder.longest * HOP
    heard = resample(sound, rate, RATE)[:longest]
    frames = log_mel(np.pad(heard, (0, longest - len(heard))), RATE, encoder.channels)
    return torch.from_numpy(frames)[None].to(encoder.positions)


def windows(sound: Floats, rate: int, longest: int) -> Iterator[Floats]:
    """Pieces of at most so many samples, each but the last ending in the quietest moment of its last third."""
    quiet = max(1, int(QUIET * rate))
    while len(sound) > longest:
        first = longest - int(SEARCHED * longest)
        energy = np.cumsum(sound[first:longest].astype(np.float64) ** 2)
        cut = first + quiet // 2 + int(np.argmin(energy[quiet:] - energy[:-quiet])) if len(energy) > quiet else longest
        yield sound[:cut]
        sound = sound[cut:]
    yield sound


class Begin:
    """What a transcript begins with and what is not said in it, as generation_config.json has it."""

    def __init__(self, rules: Mapping[str, Any], tokens: Pieces, language: str | None, to_english: bool) -> None:
        if tokens.start is None or not tokens.ends:
            raise UserError("generation_config.json beside the model does not say which tokens begin and end a text")
        self.start, self.ends = tokens.start, sorted(tokens.ends)
        self.never, self.not_first = (_ids(rules, key) for key in ("suppress_tokens", "begin_suppress_tokens"))
        self.languages = {str(key).strip("<|>"): i for key, i in (rules.get("lang_to_id") or {}).items()}
        self.language, tasks = language, rules.get("task_to_id") or {}
        if not self.languages and (to_english or language not in (None, "en")):
            raise UserError("this model knows English only: it takes no other language, and translates nothing")
        if self.languages and language is not None and language not in self.languages:
            raise UserError(f"unknown language {language!r}: {nearest(language, self.languages)}")
        task = tasks.get("translate" if to_english else "transcribe")
        self.after = [] if task is None else [task]
        plain = rules.get("no_timestamps_token_id")
        self.after += [] if plain is None else [plain]

    def named(self) -> list[int]:
        return [self.start, *self.ends, *self.never, *self.not_first, *self.after, *self.languages.values()]

    def tokens(self, model: Seq2Seq, state: Any) -> list[int]:
        if not self.languages:
            return [self.start, *self.after]
        if self.language is not None:
            return [self.start, self.languages[self.language], *self.after]
        known = list(self.languages.values())
        logits, _ = model(torch.tensor([[self.start]], device=model.out.device), state.clone())
        return [self.start, known[int(logits[0, -1, known].argmax())], *self.after]


@torch.no_grad()
def _search(model: Seq2Seq, frames: Tensor, begin: Begin, beams: int, max_tokens: int | None) -> list[int]:
    state = model.init_state(frames)
    first = begin.tokens(model, state)
    table = getattr(model.decoder.parts()[0].parts()[0].mixer, "table", None)
    room = POSITIONS if table is None else len(table)
    found = beam_search(
        model, torch.tensor([first], device=frames.device), state, end=begin.ends, beams=beams,
        max_tokens=min(max_tokens or room // 2, room - len(first)), never=begin.never, not_first=begin.not_first,
        hasty=True,
    )  # fmt: skip
    return found[0][0].tokens


def _beside(model: Seq2Seq) -> tuple[Pieces, Mapping[str, Any]]:
    home = model.home or Path()
    tokens = tokens_of(model.home)
    if not isinstance(tokens, Pieces) or not (home / "generation_config.json").is_file():
        raise UserError(f"there are no tokenizer.json and generation_config.json in {home}, so this model has no words")
    return tokens, read_config(home / "generation_config.json")


def _ids(rules: Mapping[str, Any], key: str) -> list[int]:
    found = rules.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise UserError(f"generation_config.json beside the model is damaged: {key!r} is not a list of tokens")
    return found
