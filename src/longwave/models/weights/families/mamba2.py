"""Mamba-2 (Dao and Gu 2024). The authors' own checkpoints differ in one name."""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.weights.config import Config
from longwave.models.weights.families import mamba
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"mamba2": "Mamba2ForCausalLM"}
PREFIX, OUT, ORIGINAL = mamba.PREFIX, mamba.OUT, mamba.ORIGINAL
PARTS = {"norm.weight": "norm.weight", "mixer.log_A": "mixer.A_log", "mixer.D": "mixer.D",
         "mixer.conv_bias": "mixer.conv1d.bias", "mixer.dt_bias": "mixer.dt_bias", "mixer.gain": "mixer.norm.weight",
         "mixer.project.weight": "mixer.in_proj.weight", "mixer.out.weight": "mixer.out_proj.weight"}  # fmt: skip


def spec(config: Config) -> Spec:
    made = mamba.common(config)
    config.must("layer_norm_epsilon", 1e-5)
    config.must("time_step_limit", [0.0, {"__float__": "Infinity"}], [0.0, float("inf")])
    config.ignore("time_step_rank", "norm_before_gate")
    expand, heads = config.size("expand", 2), config.size("num_heads", 128)
    config.must("head_dim", expand * made["d_model"] // heads)
    mixer = Spec("mamba2", d_state=config.size("state_size", 128), d_conv=config.size("conv_kernel", 4), expand=expand,
                 n_heads=heads, n_groups=config.size("n_groups", 8))  # fmt: skip
    return Spec("language_model", **made, tied=config.flag("tie_word_embeddings", False),
                blocks=[mixer] * config.layers("num_hidden_layers"))  # fmt: skip


def config(model: LanguageModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    mixer, d_model = layers[0].parts()[0].mixer, model.embed.embedding_dim
    inner, heads = len(mixer.gain), len(mixer.D)
    return dict(
        hidden_size=d_model, vocab_size=model.embed.num_embeddings, num_hidden_layers=len(layers), num_heads=heads,
        head_dim=inner // heads, n_groups=mixer.n_groups, expand=inner // d_model, conv_kernel=mixer.conv.shape[1],
        state_size=mixer.split[1] // mixer.n_groups, layer_norm_epsilon=model.backbone.norm.eps,
        tie_word_embeddings=model.unembed is None,
    )  # fmt: skip


def original(values: dict[str, Any]) -> dict[str, Any]:
    """The authors' config as transformers would write it, their defaults filled in."""
    config = Config(values, "config.json")
    config.must("ssm_cfg", {"layer": "Mamba2"})
    config.must("attn_layer_idx", [])
    config.must("d_intermediate", 0)
    config.ignore("attn_cfg")
    made = mamba.original_sizes(config)
    return {"model_type": "mamba2", **made, "num_heads": 2 * made["hidden_size"] // 64, "head_dim": 64, "n_groups": 1,
            "state_size": 128}  # fmt: skip


def names(model: LanguageModel) -> Names:
    return mamba.layers_of(model, PARTS)
