"""SOURCE OUT: published weights into a folder of our own"""

from collections.abc import Sequence

from longwave.commands._common import word
from longwave.flags import parse
from longwave.registry import REQUIRED


def run(argv: Sequence[str]) -> None:
    """Convert a checkpoint, its tokenizer with it, and say what was compared."""
    what = "a folder of transformers', a .pth of RWKV, a .pt of Whisper, a .gguf, a hub id, smollm2 or whisper"
    positional = [word("source", REQUIRED, what), word("out", REQUIRED, "the new folder")]
    (words,) = parse("import", argv, words=positional)
    from longwave.models.weights import bring

    print(bring(words["source"], words["out"]))
