"""GPT-2 (Radford et al. 2019)."""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config, norm
from longwave.models.weights.names import Names, turned
from longwave.spec import Spec

TYPES = {"gpt2": "GPT2LMHeadModel"}
PREFIX, OUT = "transformer.", "lm_head.weight"
BUFFERS = (r"\.attn\.(masked_)?bias$",)


def spec(config: Config) -> Spec:
    config.must("activation_function", "gelu_new", "gelu_pytorch_tanh")
    config.must("scale_attn_weights", True)
    config.must("scale_attn_by_inverse_layer_idx", False)
    config.must("add_cross_attention", False)
    config.must("tie_word_embeddings", True)
    config.ignore("reorder_and_upcast_attn")
    d_model = config.size("n_embd")
    config.must("n_inner", None, 4 * d_model)
    made = language.gpt2(d_model=d_model, n_layers=config.layers("n_layer"), n_heads=config.size("n_head"),
                         context=config.size("n_positions"), vocab=config.size("vocab_size"))  # fmt: skip
    return made.but(norm=norm("layer", config.number("layer_norm_epsilon", 1e-5)))


def config(model: LanguageModel) -> dict[str, Any]:
    positions, *layers = model.backbone.parts()
    return dict(
        n_embd=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings, n_layer=len(layers),
        n_head=layers[0].parts()[0].mixer.n_heads, n_positions=len(positions.parts()[0].mixer.table),
        layer_norm_epsilon=model.backbone.norm.eps, activation_function="gelu_new",
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "transformer.wte.weight",
                             "backbone.0.0.mixer.table": "transformer.wpe.weight"}  # fmt: skip
    for kind in ("weight", "bias"):
        found[f"backbone.norm.{kind}"] = f"transformer.ln_f.{kind}"
        for i in range(len(model.backbone.parts()) - 1):
            ours, theirs = f"backbone.{i + 1}", f"transformer.h.{i}"
            found[f"{ours}.0.norm.{kind}"] = f"{theirs}.ln_1.{kind}"
            found[f"{ours}.1.norm.{kind}"] = f"{theirs}.ln_2.{kind}"
            for mine, part in {"0.mixer.qkv": "attn.c_attn", "0.mixer.out": "attn.c_proj",
                               "1.mixer.project": "mlp.c_fc", "1.mixer.out": "mlp.c_proj"}.items():  # fmt: skip
                name = f"{theirs}.{part}.{kind}"
                found[f"{ours}.{mine}.{kind}"] = turned(name) if kind == "weight" else name
    return found
