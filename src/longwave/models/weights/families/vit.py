"""The Vision Transformer (Dosovitskiy et al. 2021)."""

from typing import Any

import torch
from torch import Tensor

from longwave.models.image_model import ImageModel
from longwave.models.presets import vision
from longwave.models.weights.config import Config
from longwave.models.weights.names import Joined, Names, Through
from longwave.spec import Spec

TYPES = {"vit": "ViTForImageClassification"}
PREFIX, OUT = "vit.", "classifier.weight"
BUFFERS = (r"^vit\.pooler\.dense\.",)  # what some checkpoints hold beside; no class is made of it


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu")
    config.must("qkv_bias", True)
    config.must("hidden_dropout_prob", 0.0)
    config.must("attention_probs_dropout_prob", 0.0)
    config.ignore("encoder_stride", "pooler_act", "pooler_output_size")
    classes = config.shape("classifier.weight")
    made = vision.vit(n_classes=classes[0] if classes else None, size=config.size("image_size", 224),
                      patch=config.size("patch_size", 16), channels=config.size("num_channels", 3),
                      d_model=config.size("hidden_size"), n_layers=config.layers("num_hidden_layers"),
                      n_heads=config.size("num_attention_heads"),
                      d_hidden=config.size("intermediate_size"))  # fmt: skip
    return made.but(norm=Spec("layer", eps=config.number("layer_norm_eps", 1e-12)))


def config(model: ImageModel) -> dict[str, Any]:
    _, *layers = model.backbone.parts()
    attention, ffn = (branch.mixer for branch in layers[0].parts())
    channels, size, _ = model.shape
    return dict(
        architectures=["ViTForImageClassification" if model.head else "ViTModel"], hidden_size=model.d_model,
        image_size=size, patch_size=model.patch, num_channels=channels, num_hidden_layers=len(layers),
        num_attention_heads=attention.n_heads, intermediate_size=ffn.out.in_features, hidden_act="gelu",
        qkv_bias=True, layer_norm_eps=layers[0].parts()[0].norm.eps,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **labels(model.head),
    )  # fmt: skip


def labels(head: torch.nn.Linear | None) -> dict[str, Any]:
    """How transformers is told the number of classes."""
    names = [] if head is None else [f"LABEL_{i}" for i in range(head.out_features)]
    return dict(id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)}) if names else {}


def names(model: ImageModel, prefix: str = PREFIX) -> Names:
    at, (channels, _, _) = f"{prefix}embeddings", model.shape

    def square(t: Tensor) -> Tensor:
        return t.unflatten(1, (channels, model.patch, model.patch))

    patches = f"{at}.patch_embeddings.projection"
    found: dict[str, Any] = {
        "first": Through(f"{at}.cls_token", lambda t: t[0, 0], lambda t: t[None, None]),
        "backbone.0.0.mixer.table": Through(f"{at}.position_embeddings", lambda t: t[0], lambda t: t[None]),
        "embed.weight": Through(f"{patches}.weight", lambda t: t.flatten(1), square),
        "embed.bias": f"{patches}.bias",
    }
    for kind in ("weight", "bias"):
        found[f"backbone.norm.{kind}"] = f"{prefix}layernorm.{kind}"
        found[f"head.{kind}"] = f"classifier.{kind}"
        for i in range(len(model.backbone.parts()) - 1):
            ours, theirs = f"backbone.{i + 1}", f"{prefix}encoder.layer.{i}"
            parts = tuple(f"{theirs}.attention.attention.{each}.{kind}" for each in ("query", "key", "value"))
            found[f"{ours}.0.mixer.qkv.{kind}"] = Joined(parts)
            for mine, name in {"0.mixer.out": "attention.output.dense", "0.norm": "layernorm_before",
                               "1.mixer.project": "intermediate.dense", "1.mixer.out": "output.dense",
                               "1.norm": "layernorm_after"}.items():  # fmt: skip
                found[f"{ours}.{mine}.{kind}"] = f"{theirs}.{name}.{kind}"
    return found
