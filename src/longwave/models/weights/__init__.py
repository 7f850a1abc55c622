"""Published weights, in and out.

    load("openai-community/gpt2")       a hub id, a folder of transformers', a .pth of RWKV, a .gguf, a run of ours
    bring("folder", "out")              the same into a folder of our own, with its tokenizer: `longwave import`
    export("out", "hf")                 back: `longwave export`

The format is detected, not asked. `families/` says how each published family names things, in both directions at once.
Nothing in a file is run; every tensor is accounted for, or it is an error that names it.
"""

from longwave.models.weights.convert import Report, bring, export, load

__all__ = ["Report", "bring", "export", "load"]
