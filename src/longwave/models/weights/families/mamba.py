"""Mamba (Gu and Dao 2023). The authors' own checkpoints differ in one name."""

import math
from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.weights.config import Config, norm
from longwave.models.weights.names import Names, taps
from longwave.spec import Spec

TYPES = {"mamba": "MambaForCausalLM"}
PREFIX, OUT = "backbone.", "lm_head.weight"
ORIGINAL = {r"^backbone\.embedding\.": "backbone.embeddings."}
PARTS = {"norm.weight": "norm.weight", "mixer.log_A": "mixer.A_log", "mixer.D": "mixer.D",
         "mixer.conv_bias": "mixer.conv1d.bias", "mixer.project.weight": "mixer.in_proj.weight",
         "mixer.select.weight": "mixer.x_proj.weight", "mixer.dt.weight": "mixer.dt_proj.weight",
         "mixer.dt.bias": "mixer.dt_proj.bias", "mixer.out.weight": "mixer.out_proj.weight"}  # fmt: skip


def common(config: Config) -> dict[str, Any]:
    """What Mamba and Mamba-2 share."""
    config.must("hidden_act", "silu")
    config.must("use_bias", False)
    config.must("use_conv_bias", True)
    config.must("rms_norm", True)
    config.ignore("residual_in_fp32", "rescale_prenorm_residual", "time_step_floor", "time_step_init_scheme",
                  "time_step_scale", "time_step_min", "time_step_max", "use_associative_scan", "use_mambapy",
                  "fused_add_norm", "chunk_size", "d_inner", "d_model", "n_layer", "pad_vocab_size_multiple",
                  "ssm_cfg")  # fmt: skip
    return dict(d_model=config.size("hidden_size"), vocab=config.size("vocab_size"),
                norm=norm("rms", config.number("layer_norm_epsilon", 1e-5)))  # fmt: skip


def spec(config: Config) -> Spec:
    made = common(config)
    expand = config.size("expand", 2)
    config.must("intermediate_size", expand * made["d_model"])
    rank = config.take("time_step_rank", "auto")
    if rank == "auto":
        rank = math.ceil(made["d_model"] / 16)
    mixer = Spec("mamba", d_state=config.size("state_size", 16), d_conv=config.size("conv_kernel", 4), expand=expand,
                 dt_rank=rank)  # fmt: skip
    return Spec("language_model", **made, tied=config.flag("tie_word_embeddings", True),
                blocks=[mixer] * config.layers("num_hidden_layers"))  # fmt: skip


def config(model: LanguageModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    mixer, d_model = layers[0].parts()[0].mixer, model.embed.embedding_dim
    inner, taps_ = mixer.conv.shape
    return dict(
        hidden_size=d_model, vocab_size=model.embed.num_embeddings, num_hidden_layers=len(layers), conv_kernel=taps_,
        expand=inner // d_model, intermediate_size=inner, state_size=mixer.log_A.shape[1],
        time_step_rank=mixer.dt.in_features, layer_norm_epsilon=model.backbone.norm.eps,
        tie_word_embeddings=model.unembed is None,
    )  # fmt: skip


def original(values: dict[str, Any]) -> dict[str, Any]:
    """The authors' config as transformers would write it."""
    config = Config(values, "config.json")
    config.must("ssm_cfg", {}, {"layer": "Mamba1"})
    config.must("attn_layer_idx", [])
    config.must("d_intermediate", 0)
    config.ignore("attn_cfg")
    return {"model_type": "mamba", **original_sizes(config)}


def original_sizes(config: Config) -> dict[str, Any]:
    config.must("rms_norm", True)
    config.ignore("fused_add_norm", "residual_in_fp32")
    multiple = config.size("pad_vocab_size_multiple", 1)
    made = dict(hidden_size=config.size("d_model"), num_hidden_layers=config.layers("n_layer"),
                vocab_size=-(-config.size("vocab_size") // multiple) * multiple,
                tie_word_embeddings=config.flag("tie_embeddings", True))  # fmt: skip
    config.done()
    return made


def names(model: LanguageModel) -> Names:
    return layers_of(model, PARTS)


def layers_of(model: LanguageModel, parts: dict[str, str]) -> Names:
    found: dict[str, Any] = {"embed.weight": "backbone.embeddings.weight"}
    found["backbone.norm.weight"] = "backbone.norm_f.weight"
    if model.unembed is not None:
        found["unembed.weight"] = OUT
    for i in range(len(model.backbone.parts())):
        theirs = f"backbone.layers.{i}"
        found[f"backbone.{i}.0.mixer.conv"] = taps(f"{theirs}.mixer.conv1d.weight")
        found |= {f"backbone.{i}.0.{mine}": f"{theirs}.{name}" for mine, name in parts.items()}
    return found
