"""GPT, the first (Radford et al. 2018): GPT-2 with the norms behind the sums, so with none at the end."""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config, norm
from longwave.models.weights.families import gpt2
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"openai-gpt": "OpenAIGPTLMHeadModel"}
PREFIX, OUT, BUFFERS = gpt2.PREFIX, gpt2.OUT, (*gpt2.BUFFERS, r"position_ids$")


def spec(config: Config) -> Spec:
    config.must("afn", "gelu")  # which is the tanh approximation there
    config.must("tie_word_embeddings", True)
    made = language.gpt1(d_model=config.size("n_embd"), n_layers=config.layers("n_layer"),
                         n_heads=config.size("n_head"), context=config.size("n_positions"),
                         vocab=config.size("vocab_size"))  # fmt: skip
    return made.but(norm=norm("layer", config.number("layer_norm_epsilon", 1e-5)))


def config(model: LanguageModel) -> dict[str, Any]:
    positions, *layers = model.backbone.parts()
    return dict(
        n_embd=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings, n_layer=len(layers), afn="gelu",
        n_head=layers[0].parts()[0].mixer.n_heads, n_positions=len(positions.parts()[0].mixer.table),
        layer_norm_epsilon=layers[0].parts()[0].norm.eps,
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {name: part for name, part in gpt2.names(model).items() if "backbone.norm" not in name}
    found["embed.weight"] = "transformer.tokens_embed.weight"
    found["backbone.0.0.mixer.table"] = "transformer.positions_embed.weight"
    return found
