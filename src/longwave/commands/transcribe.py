"""MODEL FILE.wav: speech into text"""

from collections.abc import Sequence
from pathlib import Path

from longwave.commands._common import word
from longwave.errors import UserError
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option


def run(argv: Sequence[str]) -> None:
    """Write down what is said in a wav of 16 bits, a line for each window of at most half a minute."""
    flags = [
        Option("language", str | None, None, "its code, such as en; None: found out"),
        Option("to_english", bool, False, "translate, where the model knows several languages"),
        Option("beams", int, 1, "continuations that the search keeps; 1: the likeliest token each time"),
        Option("max_tokens", int | None, None, "of a window; None: half as many as the model has positions"),
    ]
    positional = [
        word("model", REQUIRED, "a folder that holds a model, a hub id, or whisper"),
        word("file", REQUIRED, "the sound: a wav of 16 bits, of any rate and number of channels"),
    ]
    words, how = parse("transcribe", argv, [Group("search", "how to search", flags)], positional)
    from longwave.data.audio import read_wav

    sound, rate = read_wav(Path(words["file"]))
    if not len(sound):
        raise UserError(f"{words['file']} is empty: it holds no sound")
    from longwave.generate.transcribe import transcribe
    from longwave.models.seq2seq import Seq2Seq
    from longwave.models.weights import load

    model = load(words["model"])
    if not isinstance(model, Seq2Seq):
        raise UserError(f"{words['model']} holds a {type(model).__name__}, which does not transcribe")
    for text in transcribe(model, (sound / 32768).astype(sound.dtype), rate, **how):
        print(text, flush=True)
