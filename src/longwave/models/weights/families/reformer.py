"""Reformer (Kitaev et al. 2020), as a language model or an encoder that guesses hidden tokens.

transformers' sorts a longer text by buckets and cuts it into chunks, so that tokens to come move the borders; ours cuts
each bucket. The two are alike for texts of a chunk, or two where there is one round of hashing, which are seen whole,
and for texts of any length where a model that reads forwards has nothing but local layers. The rotations are no
weights: they are drawn here, alike each time; transformers draws them at every call. The bias of its output matrix is
never added.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.mixers.reformer import Reformer
from longwave.models.language_model import LanguageModel
from longwave.models.presets import efficient
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import MOST_LAYERS, Config
from longwave.models.weights.names import Joined, Names, Own, Through
from longwave.spec import Spec

TYPES = {"reformer": "ReformerModelWithLMHead"}
PREFIX, OUT = "reformer.", "lm_head.decoder.weight"
BUFFERS = (r"mask_value_float(16|32)$", r"^lm_head\.(decoder\.)?bias$")
KINDS = ("local", "lsh")


def spec(config: Config) -> Spec:
    config.must("hidden_act", "relu")
    config.must("tie_word_embeddings", False)
    for kind in KINDS:
        config.must(f"{kind}_num_chunks_before", 1)
        config.must(f"{kind}_num_chunks_after", 0)
    config.ignore(
        "attention_probs_dropout_prob", "axial_norm_std", "chunk_size_feed_forward", "chunk_size_lm_head", "hash_seed",
        "intermediate_size", "local_attention_probs_dropout_prob", "lsh_attention_probs_dropout_prob",
        "num_chunks_after", "num_chunks_before", "num_hidden_layers", "sinusoidal_pos_embds",
    )  # fmt: skip
    layers = config.take("attn_layers", KINDS * 3)
    if not isinstance(layers, list | tuple) or not 0 < len(layers) <= MOST_LAYERS or set(layers) - set(KINDS):
        raise UserError(f"{config.where}: 'attn_layers' must be a list of local and lsh, got {str(layers)[:60]}")
    chunks = {kind: config.size(f"{kind}_attn_chunk_length", 64) for kind in KINDS}
    if len({chunks[kind] for kind in layers}) != 1:
        raise UserError(
            f"{config.where}: chunks are {chunks['local']} and {chunks['lsh']} tokens, longwave has one size"
        )
    chunk, d_model = chunks[layers[0]], config.size("hidden_size", 256)
    context = config.size("max_position_embeddings", 4096)
    made = efficient.reformer(
        layers=tuple(layers), n_layers=len(layers), d_model=d_model, n_heads=config.size("num_attention_heads", 12),
        d_key=config.size("attention_head_size", 64), d_hidden=config.size("feed_forward_size", 512), chunk=chunk,
        n_buckets=_buckets(config, context, chunk), rounds=config.size("num_hashes", 1),
        vocab=config.size("vocab_size", 320), causal=config.flag("is_decoder", False),
        dropout=config.number("hidden_dropout_prob", 0.05), **_positions(config, d_model, context),
    )  # fmt: skip
    return made.but(norm=Spec("layer", eps=config.number("layer_norm_eps", 1e-12)))


def _positions(config: Config, d_model: int, context: int) -> dict[str, Any]:
    shape, widths = config.take("axial_pos_shape", [64, 64]), config.take("axial_pos_embds_dim", [64, 192])
    if not config.flag("axial_pos_embds", True):
        return dict(context=context, columns=None)
    for key, pair in (("axial_pos_shape", shape), ("axial_pos_embds_dim", widths)):
        if not _sizes(pair) or len(pair) != 2:
            raise UserError(f"{config.where}: {key!r} must be two numbers, got {str(pair)[:40]}")
    if sum(widths) != d_model:
        raise UserError(f"{config.where}: 'axial_pos_embds_dim' is {list(widths)}, of which the sum must be {d_model}")
    return dict(context=shape[0] * shape[1], columns=shape[1], d_row=widths[0])


def _buckets(config: Config, context: int, chunk: int) -> int | tuple[int, ...]:
    """What the config says; else what transformers takes for the longest text."""
    said = config.take("num_buckets", None)
    if isinstance(said, list | tuple) and _sizes(said):
        return tuple(said)
    if said is not None:
        return config.size("num_buckets")
    power = (2 * max(1, context // chunk)).bit_length() - 1
    most = 2 * max(math.isqrt(context // chunk), chunk)
    return 2**power if 2**power <= most else (2 ** (power // 2), 2 ** (power - power // 2))


def _sizes(numbers: Any) -> bool:
    return isinstance(numbers, list | tuple) and bool(numbers) and all(type(n) is int and n > 0 for n in numbers)


def config(model: LanguageModel | SequenceModel) -> dict[str, Any]:
    positions, *layers = model.backbone.parts()
    table, mixers = positions.parts()[0].mixer, [layer.parts()[0].mixer for layer in layers]
    kinds = ["lsh" if isinstance(mixer, Reformer) else "local" for mixer in mixers]
    chunks = {mixer.chunk if isinstance(mixer, Reformer) else mixer.block for mixer in mixers}
    d_model, any_, (chunk,) = model.embed.embedding_dim, mixers[0], chunks
    found: dict[str, Any] = {}
    if table.rows is not None:
        found = dict(axial_pos_shape=[len(table.rows), len(table.columns)],
                     axial_pos_embds_dim=[table.rows.shape[1], table.columns.shape[1]])  # fmt: skip
    for mixer in mixers:
        if isinstance(mixer, Reformer):
            found |= dict(num_hashes=mixer.rotations.shape[2],
                          num_buckets=mixer.buckets[0] if len(mixer.buckets) == 1 else list(mixer.buckets))  # fmt: skip
    causal = isinstance(model, LanguageModel)
    return dict(
        architectures=["ReformerModelWithLMHead" if causal else "ReformerForMaskedLM"], is_decoder=causal,
        attn_layers=kinds, hidden_size=d_model, num_attention_heads=any_.n_heads, hidden_act="relu",
        attention_head_size=any_.out.in_features // any_.n_heads, vocab_size=model.embed.num_embeddings,
        feed_forward_size=layers[0].parts()[1].mixer.out.in_features, local_attn_chunk_length=chunk,
        lsh_attn_chunk_length=chunk, axial_pos_embds=table.rows is not None, max_position_embeddings=table.longest,
        layer_norm_eps=model.backbone.norm.eps, hidden_dropout_prob=model.dropout.p, tie_word_embeddings=False, **found,
    )  # fmt: skip


def names(model: LanguageModel | SequenceModel) -> Names:
    at, table = f"{PREFIX}embeddings", f"{PREFIX}embeddings.position_embeddings"
    out = "unembed.weight" if isinstance(model, LanguageModel) else "head.out.weight"
    found: dict[str, Any] = {
        "embed.weight": f"{at}.word_embeddings.weight", out: OUT,
        "backbone.0.0.mixer.table": f"{table}.embedding.weight",
        "backbone.0.0.mixer.rows": Through(f"{table}.weights.0", lambda t: t[:, 0], lambda t: t[:, None]),
        "backbone.0.0.mixer.columns": Through(f"{table}.weights.1", lambda t: t[0], lambda t: t[None]),
    }  # fmt: skip
    for kind in ("weight", "bias"):
        found[f"backbone.norm.{kind}"] = f"{PREFIX}encoder.layer_norm.{kind}"
    for i, layer in enumerate(model.backbone.parts()[1:]):
        ours, theirs = f"backbone.{i + 1}", f"{PREFIX}encoder.layers.{i}"
        looks = f"{theirs}.attention.self_attention"
        mixer = layer.parts()[0].mixer
        if isinstance(mixer, Reformer):
            found[f"{ours}.0.mixer.uv.weight"] = Joined((f"{looks}.query_key.weight", f"{looks}.value.weight"))
            found[f"{ours}.0.mixer.rotations"] = Own(functools.partial(_drawn, tuple(mixer.rotations.shape), i))
        else:
            found[f"{ours}.0.mixer.qkv.weight"] = Joined(
                tuple(f"{looks}.{each}.weight" for each in ("query", "key", "value"))
            )
        found[f"{ours}.0.mixer.out.weight"] = f"{theirs}.attention.output.dense.weight"
        for mine, name in {"0.norm": "attention.layer_norm", "1.norm": "feed_forward.layer_norm",
                           "1.mixer.project": "feed_forward.dense.dense",
                           "1.mixer.out": "feed_forward.output.dense"}.items():  # fmt: skip
            for kind in ("weight", "bias"):
                found[f"{ours}.{mine}.{kind}"] = f"{theirs}.{name}.{kind}"
    return found


def _drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """A text short enough to be seen whole."""
    chunk = values["lsh_attn_chunk_length"] * (2 if values.get("num_hashes", 1) == 1 else 1)
    return tokens[:, : min(chunk, values["max_position_embeddings"])], {}
