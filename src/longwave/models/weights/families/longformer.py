"""Longformer (Beltagy et al. 2020), with the first token global, as its classifiers have it.

transformers' has global tokens only where `global_attention_mask` says so.
"""

from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.models.presets import efficient
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config
from longwave.models.weights.families import bert
from longwave.models.weights.names import Joined, Names, behind
from longwave.spec import Spec

TYPES = {"longformer": "LongformerModel"}
PREFIX, OUT, TIED = "longformer.", "lm_head.decoder.weight", {"lm_head.decoder.bias": "lm_head.bias"}
BUFFERS = (*bert.BUFFERS, r"pooler\.dense\.")  # which a model that guesses may have, and does not ask
HEADS = {kind: name.replace("Bert", "Longformer") for kind, name in bert.HEADS.items() if kind != "pretrain"}
PAD = 1  # the token; positions are counted from the row behind it


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu")
    config.must("position_embedding_type", "absolute")
    config.ignore("sep_token_id", "onnx_export", "ignore_attention_mask", "attention_mode")
    config.must("pad_token_id", PAD)
    window = config.take("attention_window", 512)
    if isinstance(window, list):
        if len(set(map(str, window))) != 1 or len(window) != config.layers("num_hidden_layers"):
            raise UserError(
                f"{config.where}: 'attention_window' is {str(window)[:60]}, longwave has one for all layers"
            )
        config.values["attention_window"] = window[0]
    window = config.size("attention_window", 512)
    if window % 2:
        raise UserError(f"{config.where}: 'attention_window' must be even, got {window}")
    made = efficient.longformer(n_heads=config.size("num_attention_heads"), window=window,
                                **bert.common(config, guess="lm_head", unread=PAD + 1, pooled=False))  # fmt: skip
    return bert.normed(made, config)


def config(model: SequenceModel) -> dict[str, Any]:
    mixer = model.backbone.parts()[1].parts()[0].mixer
    return dict(architectures=[HEADS[model.spec.options["head"].name]], hidden_act="gelu",
                num_attention_heads=mixer.n_heads, attention_window=2 * mixer.window - 2, pad_token_id=PAD,
                attention_probs_dropout_prob=mixer.dropout, **bert.sizes(model, unread=PAD + 1))  # fmt: skip


def names(model: SequenceModel) -> Names:
    found = {**bert.body(model, PREFIX), **bert.top(model, PREFIX, pooled=False)}
    found["backbone.0.0.mixer.table"] = behind(f"{PREFIX}embeddings.position_embeddings.weight", PAD + 1)
    guesses = model.spec.options["head"].name == "masked"
    for kind in ("weight", "bias"):
        for i in range(len(model.backbone.parts()) - 1):
            ours, theirs = f"backbone.{i + 1}.0.mixer", f"{PREFIX}encoder.layer.{i}.attention.self"
            found[f"{ours}.q_global.{kind}"] = f"{theirs}.query_global.{kind}"
            found[f"{ours}.kv_global.{kind}"] = Joined(
                tuple(f"{theirs}.{each}_global.{kind}" for each in ("key", "value"))
            )
        if guesses:
            found[f"head.dense.linear.{kind}"] = f"lm_head.dense.{kind}"
            found[f"head.dense.norm.{kind}"] = f"lm_head.layer_norm.{kind}"
    return {**found, "head.bias": "lm_head.bias"}


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The first token is global; none is a pad, which would have no position."""
    first = torch.zeros_like(tokens)
    first[:, 0] = 1
    return torch.where(tokens == PAD, PAD + 1, tokens), dict(global_attention_mask=first)
