"""RWKV-7 (Peng et al. 2025), as the authors' own .pth name it; transformers has no such model."""

import re
from typing import Any

import torch

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config
from longwave.models.weights.names import Names, Stacked, Through, turned
from longwave.models.weights.source import Source
from longwave.spec import Spec

TYPES = {"rwkv7": None}
PREFIX, OUT, MARK = "", "head.weight", "blocks.0.att.w0"
BUFFERS = (r"^blocks\.0\.att\.v[012]$",)  # the first layer has no earlier value to mix in
ORIGINAL: dict[str, str] = {}
PTH: dict[str, str] = {}
THIN = {"decay": "w", "rate": "a", "mix_value": "v", "gate": "g"}
PARTS = {"0.mixer.bonus": "att.r_k", "0.mixer.r.weight": "att.receptance.weight", "0.mixer.k.weight": "att.key.weight",
         "0.mixer.v.weight": "att.value.weight", "0.mixer.out.weight": "att.output.weight",
         "1.mixer.k.weight": "ffn.key.weight", "1.mixer.out.weight": "ffn.value.weight"}  # fmt: skip


def spec(config: Config) -> Spec:
    ranks, heads = config.take("ranks"), config.size("num_heads")
    made = language.rwkv7(d_model=config.size("hidden_size"), n_layers=config.layers("num_hidden_layers"),
                          n_heads=heads, vocab=config.size("vocab_size"))  # fmt: skip
    of_time = dict(ranks=tuple(ranks), eps=config.number("head_eps"))
    hidden = config.size("intermediate_size")
    return made.but(blocks=[[time.but(**of_time), ffn.but(d_hidden=hidden)] for time, ffn in made.options["blocks"]])


def config(model: LanguageModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    first, last = layers[0].parts()[0].mixer, layers[-1].parts()[0].mixer
    of_value = len((last.mix_value or last.gate).down.weight)
    ranks = [len(first.decay.down.weight), len(first.rate.down.weight), of_value, len(first.gate.down.weight)]
    return dict(hidden_size=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings, ranks=ranks,
                num_hidden_layers=len(layers), num_heads=first.n_heads, head_eps=first.eps,
                intermediate_size=layers[0].parts()[1].mixer.k.out_features)  # fmt: skip


def original(source: Source) -> dict[str, Any]:
    """The sizes that the tensors of a .pth have; the norm of heads is theirs, whatever a head's width."""
    layers = {int(found[1]) for name in source.entries if (found := re.match(r"blocks\.(\d{1,4})\.", name))}
    vocab, d_model = source.matrix("emb.weight")
    heads, d_head = source.matrix("blocks.0.att.r_k")
    of_value = "blocks.1.att.v1" if len(layers) > 1 else "blocks.0.att.g1"
    ranks = [source.matrix(name)[1] for name in ("blocks.0.att.w1", "blocks.0.att.a1", of_value, "blocks.0.att.g1")]
    return dict(model_type="rwkv7", hidden_size=d_model, vocab_size=vocab, num_hidden_layers=len(layers), ranks=ranks,
                num_heads=heads, head_eps=64e-5 / max(1, d_head),
                intermediate_size=source.matrix("blocks.0.ffn.key.weight")[0])  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "emb.weight", "unembed.weight": OUT}
    for kind in ("weight", "bias"):
        found[f"embed_norm.{kind}"] = f"blocks.0.ln0.{kind}"
        found[f"backbone.norm.{kind}"] = f"ln_out.{kind}"
    for i, layer in enumerate(model.backbone.parts()):
        ours, theirs, time = f"backbone.{i}", f"blocks.{i}", layer.parts()[0].mixer
        for kind in ("weight", "bias"):
            found |= {f"{ours}.{j}.norm.{kind}": f"{theirs}.ln{j + 1}.{kind}" for j in (0, 1)}
            found[f"{ours}.0.mixer.norm.{kind}"] = _in_heads(f"{theirs}.att.ln_x.{kind}", time.n_heads)
        found |= {f"{ours}.{mine}": f"{theirs}.{name}" for mine, name in PARTS.items()}
        for mine, name in THIN.items():
            found[f"{ours}.0.mixer.{mine}.down.weight"] = turned(f"{theirs}.att.{name}1")
            found[f"{ours}.0.mixer.{mine}.up.weight"] = turned(f"{theirs}.att.{name}2")
            found[f"{ours}.0.mixer.{mine}.up.bias"] = _channels(f"{theirs}.att.{name}0")
        found[f"{ours}.0.mixer.removed"] = _channels(f"{theirs}.att.k_k")
        found[f"{ours}.0.mixer.slowed"] = _channels(f"{theirs}.att.k_a")
        mixes = Stacked(tuple(_channels(f"{theirs}.att.x_{each}") for each in "rwkvag"))
        found[f"{ours}.0.mixer.mu"] = mixes
        before = _channels(f"{theirs}.ffn.x_k")  # the share of the token before, ours that of the token itself
        found[f"{ours}.1.mixer.mu"] = Through(before, lambda t: 1 - t[None], lambda t: 1 - t[0])
    return found


def _channels(name: str) -> Through:
    """A vector, stored as [1, 1, D]."""
    return Through(name, lambda t: t[0, 0], lambda t: t[None, None])


def _in_heads(name: str, heads: int) -> Through:
    return Through(name, lambda t: t.unflatten(0, (heads, -1)), torch.flatten)
