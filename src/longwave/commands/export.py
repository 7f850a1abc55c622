"""RUN OUT: a model into a folder that other programs open"""

from collections.abc import Sequence
from typing import Literal

from longwave.commands._common import word
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option


def run(argv: Sequence[str]) -> None:
    """Write a model under its published names, and say what was compared."""
    flags = [
        Option("to", Literal["hf", "safetensors", "gguf", "pth", "onnx"], "hf",
               "with the config of transformers; bare tensors; GGUF; a .pth as RWKV's authors write it; a graph of "
               "ONNX with the state as inputs and outputs"),
        Option("dtype", Literal["f32", "f16", "bf16", "q8_0"], "f32", "of the matrices in a GGUF file"),
        Option("capacity", int, 1024, "tokens that the state of an ONNX graph has room for"),
    ]  # fmt: skip
    positional = [
        word("run", REQUIRED, "a run, or a folder that holds a model"),
        word("out", REQUIRED, "the new folder"),
    ]
    words, how = parse("export", argv, [Group("format", "what to write", flags)], positional)
    from longwave.models.weights import export

    print(export(words["run"], words["out"], how["to"], how["dtype"], how["capacity"]))
