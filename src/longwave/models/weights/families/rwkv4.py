"""RWKV-4 (Peng et al. 2023), as transformers names it and as the authors' own .pth do."""

import re
from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config, norm
from longwave.models.weights.names import Names, Stacked, Through
from longwave.models.weights.source import Source
from longwave.spec import Spec

TYPES = {"rwkv": "RwkvForCausalLM"}
PREFIX, OUT, MARK = "rwkv.", "head.weight", "blocks.0.att.time_decay"
ORIGINAL = {
    r"^emb\.": "rwkv.embeddings.", r"^blocks\.0\.ln0\.": "rwkv.blocks.0.pre_ln.", r"^ln_out\.": "rwkv.ln_out.",
    r"^blocks\.(\d+)\.att\.": r"rwkv.blocks.\1.attention.", r"^blocks\.(\d+)\.ffn\.": r"rwkv.blocks.\1.feed_forward.",
    r"^blocks\.(\d+)\.ln": r"rwkv.blocks.\1.ln", r"\.time_mix_k$": ".time_mix_key",
    r"\.time_mix_v$": ".time_mix_value", r"\.time_mix_r$": ".time_mix_receptance",
}  # fmt: skip
PTH = {
    r"^rwkv\.embeddings\.": "emb.", r"^rwkv\.blocks\.0\.pre_ln\.": "blocks.0.ln0.", r"^rwkv\.": "",
    r"\.attention\.": ".att.", r"\.feed_forward\.": ".ffn.", r"\.time_mix_([kvr])[a-z]+$": r".time_mix_\1",
}  # fmt: skip
PARTS = {"0.mixer.decay": "attention.time_decay", "0.mixer.bonus": "attention.time_first",
         "0.mixer.k.weight": "attention.key.weight", "0.mixer.v.weight": "attention.value.weight",
         "0.mixer.r.weight": "attention.receptance.weight", "0.mixer.out.weight": "attention.output.weight",
         "1.mixer.k.weight": "feed_forward.key.weight", "1.mixer.r.weight": "feed_forward.receptance.weight",
         "1.mixer.out.weight": "feed_forward.value.weight"}  # fmt: skip


def spec(config: Config) -> Spec:
    d_model = config.size("hidden_size")
    config.must("attention_hidden_size", None, d_model)
    config.must("intermediate_size", None, 4 * d_model)
    config.must("tie_word_embeddings", False)
    config.ignore("context_length", "rescale_every")
    made = language.rwkv4(d_model=d_model, n_layers=config.layers("num_hidden_layers"), vocab=config.size("vocab_size"))
    return made.but(norm=norm("layer", config.number("layer_norm_epsilon", 1e-5)))


def config(model: LanguageModel) -> dict[str, Any]:
    d_model = model.embed.embedding_dim
    return dict(
        hidden_size=d_model, vocab_size=model.embed.num_embeddings, num_hidden_layers=len(model.backbone.parts()),
        attention_hidden_size=d_model, intermediate_size=4 * d_model, layer_norm_epsilon=model.backbone.norm.eps,
        tie_word_embeddings=False, rescale_every=0,
    )  # fmt: skip


def original(source: Source) -> dict[str, Any]:
    """The sizes that the tensors of a .pth have, as transformers would write them."""
    layers = {int(found[1]) for name in source.entries if (found := re.match(r"blocks\.(\d{1,4})\.", name))}
    vocab, d_model = source.matrix("emb.weight")
    return dict(model_type="rwkv", hidden_size=d_model, vocab_size=vocab, num_hidden_layers=len(layers))


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "rwkv.embeddings.weight", "unembed.weight": OUT}
    for kind in ("weight", "bias"):
        found[f"embed_norm.{kind}"] = f"rwkv.blocks.0.pre_ln.{kind}"
        found[f"backbone.norm.{kind}"] = f"rwkv.ln_out.{kind}"
    for i in range(len(model.backbone.parts())):
        ours, theirs = f"backbone.{i}", f"rwkv.blocks.{i}"
        for kind in ("weight", "bias"):
            found |= {f"{ours}.{j}.norm.{kind}": f"{theirs}.ln{j + 1}.{kind}" for j in (0, 1)}
        for mine, mixes in (("0", ("key", "value", "receptance")), ("1", ("key", "receptance"))):
            part = "attention" if mine == "0" else "feed_forward"
            stack = Stacked(tuple(f"{theirs}.{part}.time_mix_{each}" for each in mixes))
            found[f"{ours}.{mine}.mixer.mu"] = Through(stack, lambda t: t[:, 0, 0], lambda t: t[:, None, None])
        found |= {f"{ours}.{mine}": f"{theirs}.{name}" for mine, name in PARTS.items()}
    return found
