"""MODEL TEXTS: texts as vectors, and which are alike"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from longwave.commands._common import word
from longwave.errors import UserError
from longwave.files import write_whole
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option


def run(argv: Sequence[str]) -> None:
    """A vector a text. Of several, how alike each is to the first, the most alike before the others."""
    flags = [
        Option("pool", Literal["mean", "first", "last"] | None, None, "how tokens become one; None: as the model says"),
        Option("out", str | None, None, "write the vectors into this .npy file"),
        Option("json", bool, False, "print the vectors, too, as JSON"),
    ]
    positional = [
        word("model", REQUIRED, "a run, a folder that holds a model, a hub id, or minilm"),
        Option("texts", tuple[str, ...], (), "texts; or one file with a text a line, - for standard input"),
    ]
    words, how = parse("embed", argv, [Group("vectors", "what to make of them", flags)], positional)
    texts = _texts(words["texts"])
    import numpy as np

    from longwave.embed import embed
    from longwave.models.weights import load

    vectors = embed(load(words["model"]), texts, pool=how["pool"])
    if how["out"]:
        write_whole(Path(how["out"]), lambda file: _save(np, file, vectors.numpy()))
    unit = vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    alike = (unit @ unit[0]).tolist()
    if how["json"] or (len(texts) == 1 and not how["out"]):
        print(json.dumps({"texts": texts, "vectors": vectors.tolist(), "similarity_to_the_first": alike}))
    elif len(texts) > 1:
        print(f"to {texts[0]!r}")
        for i in sorted(range(1, len(texts)), key=lambda i: -alike[i]):
            print(f"  {alike[i]:7.4f}  {texts[i]}")


def _save(np: Any, file: Path, vectors: Any) -> None:
    with file.open("wb") as opened:
        np.save(opened, vectors)


def _texts(words: Sequence[str]) -> list[str]:
    found = list(words)
    try:
        if found == ["-"]:
            found = sys.stdin.read().splitlines()
        elif len(found) == 1 and Path(found[0]).is_file():
            found = Path(found[0]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"cannot read {words[0]} as text") from problem
    found = [text for text in found if text.strip()]
    if not found:
        raise UserError("there is no text to embed: give some, or a file with a text a line")
    return found
