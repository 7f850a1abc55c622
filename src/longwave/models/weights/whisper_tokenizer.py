"""The tokenizer of Whisper's own .pt, of the byte-pair ranks in the package openai-whisper, as files that transformers
opens: GPT-2's words (or those of many languages), then marks for languages, tasks and times.
"""

import base64
import binascii
import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

from longwave.errors import UserError
from longwave.models.audio_model import AudioModel
from longwave.models.model import Model
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.byte_tokenizer import letter
from longwave.models.weights.gguf_tokenizer import BYTES

Ranks = dict[bytes, int]
PACKAGE = "openai-whisper==20250625"
ENGLISH = 51864  # tokens of a model of English only; 51865 or, with Cantonese, 51866 of many languages
LANGUAGES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk
te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo
ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"""  # fmt: skip
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
TIMES = 1501  # marks, of 20 ms each
SIGNS = '"#()*+/:;<=>@[\\]^_`{|}~「」『』'  # are not spoken, nor are these:
GROUPS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
NOTES = "♩♪♫♬♭♮♯"  # of several tokens; the first is barred


def has_tokenizer(model: Model) -> bool:
    """Whether a model has the words of the published ones."""
    heard = isinstance(model, Seq2Seq) and isinstance(model.encoder, AudioModel)
    return heard and 0 <= len(model.embed.weight) - ENGLISH <= 2  # type: ignore[arg-type]


def write_tokenizer(size: int, folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json of a model of so many tokens."""
    ranks = _ranks("gpt2" if size == ENGLISH else "multilingual")
    languages = LANGUAGES.split()[: 99 + (size > ENGLISH + 1)]
    marks = ["endoftext", "startoftranscript", *languages, *TASKS, *(f"{i / 50:.2f}" for i in range(TIMES))]
    first = size - len(marks)
    ids = {f"<|{mark}|>": first + i for i, mark in enumerate(marks)}
    words = {word: i for word, i in ranks.items() if i < first}
    letters = [letter(byte) for byte in range(256)]
    spelt = {word: "".join(letters[byte] for byte in word) for word in words}
    merges = [" ".join(spelt[part] for part in _parts(word, words, i)) for word, i in words.items() if len(word) > 1]
    added = [dict(id=i, content=mark, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False)
             for mark, i in ids.items()]  # fmt: skip
    vocab = {spelt[word]: i for word, i in words.items()}
    tokenizer = dict(version="1.0", added_tokens=added, pre_tokenizer=BYTES, decoder=BYTES,
                     model=dict(type="BPE", vocab=vocab, merges=merges))  # fmt: skip
    end = "<|endoftext|>"
    about = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=end, eos_token=end, pad_token=end)
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": about,
             "generation_config.json": _rules(words, ids, size > ENGLISH, languages)}  # fmt: skip
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values) + "\n", encoding="utf-8")


def _rules(words: Ranks, ids: dict[str, int], multilingual: bool, languages: list[str]) -> dict[str, Any]:
    """How to begin, and what is not to be said, under transformers' names."""
    start, end = ids["<|startoftranscript|>"], ids["<|endoftext|>"]
    barred = {_encode(b" -", words)[0], _encode(b" '", words)[0], start}
    barred |= {ids[f"<|{each}|>"] for each in ("startoflm", "startofprev", "nospeech")}
    for sign in [*SIGNS, *GROUPS.split(), *NOTES]:
        for text in (sign, f" {sign}"):
            found = _encode(text.encode(), words)
            if len(found) == 1 or sign in NOTES:
                barred.add(found[0])
    rules: dict[str, Any] = dict(
        bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=start, max_length=448,
        no_timestamps_token_id=ids["<|notimestamps|>"], suppress_tokens=sorted(barred),
        begin_suppress_tokens=[words[b" "], end], is_multilingual=multilingual,
    )  # fmt: skip
    if multilingual:
        rules["lang_to_id"] = {f"<|{each}|>": ids[f"<|{each}|>"] for each in languages}
        rules["task_to_id"] = {each: ids[f"<|{each}|>"] for each in ("transcribe", "translate")}
    return rules


def _ranks(name: str) -> Ranks:
    spec = importlib.util.find_spec("whisper")  # it is not imported
    places = (spec.submodule_search_locations if spec else None) or [""]
    file = Path(places[0]) / "assets" / f"{name}.tiktoken"
    if not file.is_file():
        raise UserError(f"the words of Whisper are not here: pip install --no-deps {PACKAGE}")
    try:
        rows = (line.split() for line in file.read_bytes().splitlines() if line)
        return {base64.b64decode(word): int(rank) for word, rank in rows}
    except (ValueError, binascii.Error) as problem:
        raise UserError(f"{file} is damaged: a line is not a word and its rank") from problem


def _parts(word: bytes, ranks: Ranks, most: int) -> list[bytes]:
    """The word, put together of single bytes by merges of a rank below `most`, the lowest before the others."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while len(parts) > 1:
        pairs = [ranks.get(a + b, most) for a, b in itertools.pairwise(parts)]
        best = min(pairs)
        if best >= most:
            break
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _encode(word: bytes, ranks: Ranks) -> list[int]:
    return [ranks[part] for part in _parts(word, ranks, len(ranks))]
