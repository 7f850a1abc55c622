"""RUN [TEXT]: translate a text"""

import sys
from collections.abc import Sequence

from longwave.commands._common import word
from longwave.errors import UserError
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option

AT_ONCE = 256  # lines of standard input


def run(argv: Sequence[str]) -> None:
    """Translate a text by beam search, line by line where it comes from standard input."""
    from longwave.generate.beam import Rule

    flags = [
        Option("beams", int, 4, "continuations that the search keeps"),
        Option("length_penalty", float, 1.0, "above 0 longer translations are favoured"),
        Option("rule", Rule, "power", "how a length n counts: n^penalty, or Google's ((5 + n) / 6)^penalty"),
        Option("coverage", float, 0.0, "above 0 translations are favoured that looked at all of the source"),
        Option("max_tokens", int | None, None, "end there; None: twice as many as the source has, and 10"),
    ]
    positional = [word("run", REQUIRED, "a run, a folder that holds a model, or a hub id"),
                  word("text", "-", "the text; - reads lines from standard input")]  # fmt: skip
    words, how = parse("translate", argv, [Group("search", "how to search", flags)], positional)
    from longwave.generate.translate import translate
    from longwave.models.seq2seq import Seq2Seq
    from longwave.models.weights import load

    model = load(words["run"])
    if not isinstance(model, Seq2Seq):
        raise UserError(f"{words['run']} holds a {type(model).__name__}, which does not translate")
    lines = [words["text"]] if words["text"] != "-" else sys.stdin.read().splitlines()
    for first in range(0, len(lines), AT_ONCE):
        for line in translate(model, lines[first : first + AT_ONCE], **how):
            print(line, flush=True)
