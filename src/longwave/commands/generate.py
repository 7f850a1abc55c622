"""RUN [PROMPT]: continue a text, or draw images"""

import sys
from collections.abc import Sequence
from typing import Any

from longwave.commands._common import word
from longwave.errors import UserError
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option, schema


def run(argv: Sequence[str]) -> None:
    """Continue a text, shown as it comes; a model of pixels draws images."""
    from longwave.data.chat import chat_prompt
    from longwave.generate.loop import stream
    from longwave.generate.sampling import Sampling

    flags = [
        Option("max_tokens", int, 400, "stop after so many tokens"),
        Option("seed", int | None, None, "the same seed gives the same text; None: another each time"),
        Option("chat", bool, False, "the prompt is what a user says: answer it, by the model's chat template"),
        Option("stop", tuple[str, ...], (), "end before any of these texts"),
        Option("images", int, 4, "how many a model of pixels draws"),
        Option("png", str | None, None, "the file that they go to; None: they are printed"),
    ]
    groups = [Group("text", "what to generate", flags), Group("sampling", "how to choose a token", schema(Sampling))]
    positional = [word("run", REQUIRED, "a run, a folder that holds a model, or a hub id"),
                  word("prompt", "", "the text to continue; - reads it from standard input")]  # fmt: skip
    words, how, sampling = parse("generate", argv, groups, positional)
    from longwave.models.language_model import LanguageModel
    from longwave.models.pixel_model import PixelModel
    from longwave.models.weights import load

    chosen_how = Sampling(**sampling)
    model = load(words["run"])
    if isinstance(model, PixelModel):
        return _draw(model, how["images"], how["seed"], how["png"])
    if not isinstance(model, LanguageModel) or not model.causal:
        other = ": longwave translate does" if type(model).__name__ == "Seq2Seq" else ""
        raise UserError(f"{words['run']} holds a {type(model).__name__} that does not generate{other}")
    prompt = sys.stdin.read() if words["prompt"] == "-" else words["prompt"]
    if how["chat"]:
        prompt = chat_prompt(model.home, [dict(role="user", content=prompt)])
    else:
        print(prompt, end="", flush=True)
    pieces = stream(
        model, [prompt], max_tokens=how["max_tokens"], sampling=chosen_how, seed=how["seed"], stop=how["stop"]
    )
    for _, piece in pieces:
        print(piece, end="", flush=True)
    print()


def _draw(model: Any, count: int, seed: int | None, png: str | None) -> None:
    import torch

    from longwave.generate.pictures import as_text, side_by_side, write_png

    if png and model.shape[0] not in (1, 3):
        raise UserError(f"a PNG has 1 or 3 values a pixel, this model {model.shape[0]}")
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    pixels = side_by_side(model.eval().sample(count, generator=generator)[0], model.levels)
    if png:
        write_png(png, pixels)
    else:
        print(as_text(pixels))
