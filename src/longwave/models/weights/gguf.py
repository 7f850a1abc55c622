"""GGUF, the one-file format of llama.cpp, for the Llama family: weights, sizes and tokenizer in and out.

The header is read here, so that no count in it is believed before the file was seen to be that long; the `gguf` package
unpacks the quantised blocks and writes files. llama.cpp turns neighbouring channels of a query and key together, the
rest of the world channel i with i + d / 2: rows of `attn_q` and `attn_k` are reordered on the way.
"""

import functools
import json
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longwave.errors import UserError, nearest
from longwave.models.weights.config import Config
from longwave.models.weights.gguf_tokenizer import MODEL, tokenizer_fields, tokenizer_files
from longwave.models.weights.names import in_halves
from longwave.models.weights.source import Entry, Source

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCKS = {  # by number: its name, numbers in a block, bytes of a block
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 8: ("Q8_0", 32, 34), 2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20), 12: ("Q4_K", 256, 144), 14: ("Q6_K", 256, 210),
}  # fmt: skip
WRITTEN = ("f32", "f16", "bf16", "q8_0")
NAMES = {  # theirs: of transformers
    r"token_embd\.": "model.embed_tokens.", r"output_norm\.": "model.norm.", r"output\.": "lm_head.",
    r"blk\.(\d+)\.attn_norm\.": r"model.layers.\1.input_layernorm.",
    r"blk\.(\d+)\.ffn_norm\.": r"model.layers.\1.post_attention_layernorm.",
    r"blk\.(\d+)\.attn_output\.": r"model.layers.\1.self_attn.o_proj.",
    r"blk\.(\d+)\.attn_([qkv])\.": r"model.layers.\1.self_attn.\2_proj.",
    r"blk\.(\d+)\.ffn_(gate|up|down)\.": r"model.layers.\1.mlp.\2_proj.",
}  # fmt: skip
BACK = {
    r"model\.embed_tokens\.": "token_embd.", r"model\.norm\.": "output_norm.", r"lm_head\.": "output.",
    r"model\.layers\.(\d+)\.input_layernorm\.": r"blk.\1.attn_norm.",
    r"model\.layers\.(\d+)\.post_attention_layernorm\.": r"blk.\1.ffn_norm.",
    r"model\.layers\.(\d+)\.self_attn\.o_proj\.": r"blk.\1.attn_output.",
    r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj\.": r"blk.\1.attn_\2.",
    r"model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj\.": r"blk.\1.ffn_\2.",
}  # fmt: skip


def package() -> Any:
    try:
        import gguf
    except ImportError as missing:
        raise UserError("GGUF needs: pip install 'longwave[gguf]'") from missing
    return gguf


class Header:
    """Fields and places of tensors; every read is checked against the end of the file."""

    def __init__(self, file: Path) -> None:
        self.file, self.at = file, 0
        try:
            self.data = np.memmap(file, np.uint8, mode="r")
        except (OSError, ValueError) as problem:
            raise UserError(f"{file} is damaged or not a GGUF file: it cannot be read") from problem
        if self._bytes(4) != b"GGUF":
            raise UserError(f"{file} is damaged or not a GGUF file")
        version = self._number("I")
        if version not in (2, 3):
            raise UserError(f"{file} is a GGUF file of version {version}, longwave reads 2 and 3")
        n_tensors, n_fields = self._count(24), self._count(12)
        self.fields: dict[str, Any] = {}
        for _ in range(n_fields):
            key = self._text()
            if key in self.fields:
                raise UserError(f"{file} is damaged: it has the field {key[:60]!r} twice")
            self.fields[key] = self._value(self._number("I"), key)
        infos = [self._info() for _ in range(n_tensors)]
        alignment = self.fields.get("general.alignment", 32)
        if alignment not in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
            raise UserError(f"{file} is damaged: 'general.alignment' is {str(alignment)[:40]}")
        self.entries: dict[str, Entry] = {}
        start = -(-self.at // alignment) * alignment
        for name, shape, kind, offset in infos:
            if name in self.entries:
                raise UserError(f"{file} is damaged: it has the tensor {name[:60]!r} twice")
            self.entries[name] = self._entry(name, shape, kind, start + offset)

    def _bytes(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise UserError(f"{self.file} is damaged: it ends at byte {len(self.data)}, within its header")
        self.at += n
        return self.data[self.at - n : self.at].tobytes()

    def _number(self, letter: str) -> Any:
        return struct.unpack("<" + letter, self._bytes(struct.calcsize("<" + letter)))[0]

    def _count(self, least: int) -> int:
        """How many things of at least so many bytes follow."""
        n = self._number("Q")
        if n * least > len(self.data) - self.at:
            raise UserError(f"{self.file} is damaged: it claims {n} things where {len(self.data) - self.at} bytes are")
        return n

    def _text(self) -> str:
        try:
            return self._bytes(self._count(1)).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise UserError(f"{self.file} is damaged: a text at byte {self.at} is not UTF-8") from problem

    def _value(self, kind: int, key: str) -> Any:
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind == STRING:
            return self._text()
        inner = self._number("I") if kind == ARRAY else None
        if inner == STRING:
            return [self._text() for _ in range(self._count(8))]
        if inner not in NUMBERS:
            raise UserError(f"{self.file}: the field {key[:60]!r} is of an unknown type ({kind})")
        size = struct.calcsize("<" + NUMBERS[inner])
        n = self._count(size)
        return list(struct.unpack(f"<{n}{NUMBERS[inner]}", self._bytes(n * size)))

    def _info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self._text(), self._number("I")
        if rank > 4:
            raise UserError(f"{self.file} is damaged: the tensor {name[:60]!r} has {rank} axes")
        shape = tuple(self._number("Q") for _ in range(rank))
        return name, shape[::-1], self._number("I"), self._number("Q")

    def _entry(self, name: str, shape: tuple[int, ...], kind: int, at: int) -> Entry:
        if kind not in BLOCKS:
            known = ", ".join(known for known, *_ in BLOCKS.values())
            raise UserError(f"{self.file}: the tensor {name[:60]!r} is of type {kind}, longwave reads {known}")
        _, numbers, size = BLOCKS[kind]
        if not shape or shape[-1] % numbers or 0 in shape:
            raise UserError(f"{self.file} is damaged: the tensor {name[:60]!r} has shape {list(shape)}")
        end = at + math.prod(shape) // numbers * size
        if end > len(self.data):
            raise UserError(f"{self.file} is damaged: the tensor {name[:60]!r} lies behind its end")
        return Entry(shape, functools.partial(_unpack, self.data[at:end], kind, shape), self.file)


def _unpack(raw: np.ndarray, kind: int, shape: tuple[int, ...]) -> Tensor:
    gguf = package()
    rows = np.ascontiguousarray(raw).reshape(*shape[:-1], -1)
    if BLOCKS[kind][0] in ("F32", "F16"):
        rows = rows.view(np.float32 if kind == 0 else np.float16)
    with np.errstate(all="ignore"):  # what is not finite is told apart by the reader of the tensor
        unpacked = gguf.dequantize(rows, gguf.GGMLQuantizationType(kind))
    return torch.from_numpy(np.array(unpacked, np.float32))


def open_gguf(file: Path) -> Source:
    """Its tensors under the names of transformers, and the config.json that transformers would have."""
    package()
    header = Header(file)
    config = _sizes(Config(header.fields, str(file)), header.entries)
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    entries = {}
    for name, entry in header.entries.items():
        turned = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", name)
        if turned and entry.shape[0] == heads[turned[1]] * config["head_dim"]:
            rows = in_halves("", heads[turned[1]], 0, config["head_dim"])
            entry = Entry(entry.shape, functools.partial(_through, rows.ours, entry.load), file)
        entries[_renamed(name, NAMES)] = entry
    if len(entries) < len(header.entries):
        raise UserError(f"{file} is damaged: two of its tensors have the same name")
    return Source(file, config, entries)


def _through(change: Any, load: Any) -> Tensor:
    return change(load())


def _renamed(name: str, table: Mapping[str, str]) -> str:
    for pattern, new in table.items():
        if re.match(pattern, name):
            return re.sub("^" + pattern, new, name)
    return name


def _sizes(fields: Config, entries: Mapping[str, Entry]) -> dict[str, Any]:
    kind = fields.take("general.architecture")
    if kind != "llama":
        raise UserError(f"{fields.where} is of the architecture {str(kind)[:40]!r}; longwave reads GGUF of 'llama'")
    own = Config({k[6:]: v for k, v in fields.values.items() if k.startswith("llama.")}, f"{fields.where}, llama.*")
    d_model, heads = own.size("embedding_length"), own.size("attention.head_count")
    d_head = own.size("attention.key_length", own.values.get("rope.dimension_count", max(1, d_model // heads)))
    own.must("attention.value_length", d_head)
    own.must("rope.dimension_count", d_head)
    own.must("expert_count", 0)
    own.must("expert_used_count", 0)
    own.ignore("context_length", "vocab_size", "rope.scaling.original_context_length", "rope.scaling.finetuned")
    own.must("rope.scaling.type", "none", "linear")
    rope: dict[str, Any] = dict(rope_type="default", rope_theta=own.number("rope.freq_base", 10000.0))
    factor = own.number("rope.scaling.factor", 1.0)
    if own.values.get("rope.scaling.type") == "linear":
        rope.update(rope_type="linear", factor=factor)
    embedding = entries.get("token_embd.weight")
    if embedding is None:
        raise UserError(f"{fields.where} lacks the tensor 'token_embd.weight'")
    n_kv_heads = own.size("attention.head_count_kv", heads)
    config = dict(
        model_type="llama", hidden_size=d_model, num_hidden_layers=own.layers("block_count"),
        num_attention_heads=heads, num_key_value_heads=n_kv_heads, head_dim=d_head,
        intermediate_size=own.size("feed_forward_length"), vocab_size=embedding.shape[0], rope_parameters=rope,
        rms_norm_eps=round_float(own.number("attention.layer_norm_rms_epsilon")),
        attention_bias="blk.0.attn_q.bias" in entries, mlp_bias="blk.0.ffn_up.bias" in entries,
        tie_word_embeddings="output.weight" not in entries,
    )  # fmt: skip
    if d_head % 2 or max(heads, n_kv_heads) * d_head > 2**24:
        raise UserError(f"{fields.where}: no model has {heads} heads of width {d_head}")
    own.done()
    return config


def round_float(x: float) -> float:
    """The short number that a float32 was written from: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(x)))


def write_gguf(values: Mapping[str, Any], tensors: Mapping[str, Tensor], home: Path, file: Path, dtype: str) -> None:
    """Write a model given as transformers names it; vectors stay in float32, as llama.cpp wants them."""
    gguf = package()
    if dtype not in WRITTEN:
        raise UserError(f"unknown type {dtype!r} of numbers in a GGUF file: {nearest(dtype, WRITTEN)}")
    rope = values.get("rope_parameters", {})
    if values["model_type"] != "llama" or rope.get("rope_type") not in ("default", "linear"):
        what = values["model_type"] if values["model_type"] != "llama" else f"{rope.get('rope_type')} rotations"
        raise UserError(f"GGUF is written for llama without or with linear rotary scaling, this is {what}")
    fields = tokenizer_fields(home, values["vocab_size"])
    writer = gguf.GGUFWriter(file, "llama", use_temp_file=False)
    writer.add_context_length(2048)  # a field llama.cpp asks for; a rotary model has no such limit
    writer.add_vocab_size(values["vocab_size"])
    writer.add_embedding_length(values["hidden_size"])
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_feed_forward_length(values["intermediate_size"])
    writer.add_head_count(values["num_attention_heads"])
    writer.add_head_count_kv(values["num_key_value_heads"])
    writer.add_key_length(values["head_dim"])
    writer.add_value_length(values["head_dim"])
    writer.add_rope_dimension_count(values["head_dim"])
    writer.add_layer_norm_rms_eps(values["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    for key, value in fields.items():
        _add(writer, key, value)
    for name, t in tensors.items():
        _add_tensor(writer, _renamed(name, BACK), t, values, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, value)


def _add_tensor(writer: Any, name: str, t: Tensor, values: Mapping[str, Any], dtype: str) -> None:
    gguf = package()
    heads = {"q": "num_attention_heads", "k": "num_key_value_heads"}
    turned = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", name)
    if turned:
        t = in_halves("", values[heads[turned[1]]], 0, values["head_dim"]).theirs(t)
    if t.ndim == 1:
        dtype = "f32"
    elif dtype == "q8_0" and t.shape[-1] % 32:
        dtype = "f16"  # as llama.cpp does with rows that are no whole blocks
    if dtype == "f16" and t.abs().max() > 65504:
        raise UserError(f"the tensor {name!r} holds numbers too large for f16: write bf16 or f32")
    kind = gguf.GGMLQuantizationType[dtype.upper()]
    writer.add_tensor(name, gguf.quantize(t.float().contiguous().numpy(), kind), raw_dtype=kind)


def write_beside(file: Path, folder: Path) -> None:
    """The tokenizer of a GGUF file, as the files that stand beside weights elsewhere."""
    fields = Header(file).fields
    if fields.get(MODEL, "none") not in ("none", "no_vocab"):
        for name, content in tokenizer_files(Config(fields, str(file))).items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
