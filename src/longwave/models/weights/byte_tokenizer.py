"""The tokenizer of a model of bytes, as files that transformers opens: token b is the byte b, 0 stands before a text.

Its vocabulary writes each byte as one letter, as that of GPT-2 does: the printable ones as themselves, the others as
the letters from U+0100 on.
"""

import json
from pathlib import Path
from typing import Any

from longwave.files import write_whole

END = "\0"  # token 0, before and between documents


def write_bytes(folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json."""
    spaces = dict(add_prefix_space=False, trim_offsets=False, use_regex=False)
    first = {"SpecialToken": {"id": END, "type_id": 0}}
    special = dict(id=0, content=END, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False)
    tokenizer = dict(
        version="1.0", added_tokens=[special], pre_tokenizer=dict(type="ByteLevel", **spaces),
        post_processor=dict(
            type="TemplateProcessing", single=[first, {"Sequence": {"id": "A", "type_id": 0}}],
            pair=[first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            special_tokens={END: dict(id=END, ids=[0], tokens=[END])},
        ),
        decoder=dict(type="ByteLevel", **spaces),
        model=dict(type="BPE", vocab={END: 0, **{letter(b): b for b in range(1, 256)}}, merges=[]),
    )  # fmt: skip
    about = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=END, eos_token=END, pad_token=END,
                 clean_up_tokenization_spaces=False, padding_side="left")  # fmt: skip
    _write(folder / "tokenizer.json", tokenizer)
    _write(folder / "tokenizer_config.json", about)
    _write(folder / "generation_config.json", dict(bos_token_id=0, eos_token_id=0, pad_token_id=0))


def letter(byte: int) -> str:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in plain:
        return chr(byte)
    return chr(0x100 + sum(b not in plain for b in range(byte)))


def _write(file: Path, values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=1) + "\n"
    write_whole(file, lambda part: part.write_text(text, encoding="utf-8"))
