"""GPT-2 (Radford et al. 2019)."""

from typing import Any

from torch import nn

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
    return sizes(model.embed, model.backbone)


def sizes(embed: nn.Embedding, backbone: Any) -> dict[str, Any]:
    positions, *layers = backbone.parts()
    return dict(
        n_embd=embed.embedding_dim, vocab_size=embed.num_embeddings, n_layer=len(layers),
        n_head=layers[0].parts()[0].mixer.n_heads, n_positions=len(positions.parts()[0].mixer.table),
        layer_norm_epsilon=backbone.norm.eps, activation_function="gelu_new",
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    return body("backbone", PREFIX, len(model.backbone.parts()) - 1, BRANCHES)


BRANCHES: list[tuple[str, dict[str, str]]] = [  # of a layer: their norm, and their matrices by ours
    ("ln_1", {"qkv": "attn.c_attn", "out": "attn.c_proj"}),
    ("ln_2", {"project": "mlp.c_fc", "out": "mlp.c_proj"}),
]


def body(at: str, prefix: str, n_layers: int, branches: list[tuple[str, dict[str, str]]]) -> dict[str, Any]:
    """All there is; a decoder has more branches a layer."""
    found: dict[str, Any] = {"embed.weight": f"{prefix}wte.weight", f"{at}.0.0.mixer.table": f"{prefix}wpe.weight"}
    for kind in ("weight", "bias"):
        found[f"{at}.norm.{kind}"] = f"{prefix}ln_f.{kind}"
        for i in range(n_layers):
            for b, (before, matrices) in enumerate(branches):
                ours, theirs = f"{at}.{i + 1}.{b}", f"{prefix}h.{i}"
                found[f"{ours}.norm.{kind}"] = f"{theirs}.{before}.{kind}"
                for mine, part in matrices.items():
                    name = f"{theirs}.{part}.{kind}"
                    found[f"{ours}.mixer.{mine}.{kind}"] = turned(name) if kind == "weight" else name
    return found
