"""RUN [PROMPT]: continue a text"""

import sys
from collections.abc import Sequence

from longwave.commands._common import word
from longwave.errors import UserError
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option, schema


def run(argv: Sequence[str]) -> None:
    """Continue a text, shown as it comes."""
    from longwave.data.chat import chat_prompt
    from longwave.generate.loop import stream
    from longwave.generate.sampling import Sampling

    flags = [
        Option("max_tokens", int, 400, "stop after so many tokens"),
        Option("seed", int | None, None, "the same seed gives the same text; None: another each time"),
        Option("chat", bool, False, "the prompt is what a user says: answer it, by the model's chat template"),
        Option("stop", tuple[str, ...], (), "end before any of these texts"),
    ]
    groups = [Group("text", "what to generate", flags), Group("sampling", "how to choose a token", schema(Sampling))]
    positional = [word("run", REQUIRED, "a run, a folder that holds a model, or a hub id"),
                  word("prompt", "", "the text to continue; - reads it from standard input")]  # fmt: skip
    words, how, sampling = parse("generate", argv, groups, positional)
    from longwave.models.language_model import LanguageModel
    from longwave.models.weights import load

    chosen_how = Sampling(**sampling)
    model = load(words["run"])
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
