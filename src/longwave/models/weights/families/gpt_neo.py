"""GPT-Neo (Black et al. 2021): dense and local layers in turn, scores that no width divides."""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config, norm
from longwave.models.weights.names import Joined, Names
from longwave.spec import Spec

TYPES = {"gpt_neo": "GPTNeoForCausalLM"}
PREFIX, OUT = "transformer.", "lm_head.weight"
BUFFERS = (r"\.attention\.(masked_)?bias$",)


def spec(config: Config) -> Spec:
    config.must("activation_function", "gelu_new", "gelu_pytorch_tanh")
    config.must("tie_word_embeddings", True)
    d_model, n_layers = config.size("hidden_size"), config.layers("num_layers")
    in_turn = [i % 2 for i in range(n_layers)]
    config.must("attention_types", [[["global", "local"], -(-n_layers // 2)]])
    config.must("attention_layers", ["local" if i else "global" for i in in_turn])
    config.must("intermediate_size", None, 4 * d_model)
    made = language.gpt_neo(d_model=d_model, n_layers=n_layers, n_heads=config.size("num_heads"),
                            window=config.size("window_size", 256), context=config.size("max_position_embeddings"),
                            vocab=config.size("vocab_size"))  # fmt: skip
    return made.but(norm=norm("layer", config.number("layer_norm_epsilon", 1e-5)))


def config(model: LanguageModel) -> dict[str, Any]:
    positions, *layers = model.backbone.parts()
    return dict(
        hidden_size=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings, num_layers=len(layers),
        num_heads=layers[0].parts()[0].mixer.n_heads, window_size=layers[1].parts()[0].mixer.window,
        max_position_embeddings=len(positions.parts()[0].mixer.table), activation_function="gelu_new",
        attention_types=[[["global", "local"], -(-len(layers) // 2)]], layer_norm_epsilon=model.backbone.norm.eps,
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "transformer.wte.weight",
                             "backbone.0.0.mixer.table": "transformer.wpe.weight"}  # fmt: skip
    for kind in ("weight", "bias"):
        found[f"backbone.norm.{kind}"] = f"transformer.ln_f.{kind}"
    for i in range(len(model.backbone.parts()) - 1):
        ours, theirs = f"backbone.{i + 1}", f"transformer.h.{i}"
        found[f"{ours}.0.mixer.qkv.weight"] = Joined(
            tuple(f"{theirs}.attn.attention.{each}_proj.weight" for each in "qkv")
        )
        for mine, part in {"0.norm": "ln_1", "1.norm": "ln_2", "0.mixer.out": "attn.attention.out_proj",
                           "1.mixer.project": "mlp.c_fc", "1.mixer.out": "mlp.c_proj"}.items():  # fmt: skip
            for kind in ("weight", "bias"):
                found[f"{ours}.{mine}.{kind}"] = f"{theirs}.{part}.{kind}"
    return found
