"""Llama 2 and 3, SmolLM, Mistral and Qwen 2: grouped-query attention, rotary positions, SwiGLU.

Touvron et al. 2023, Grattafiori et al. 2024; Jiang et al. 2023; Yang et al. 2024.
"""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.weights.config import Config, norm, rope_parameters
from longwave.models.weights.names import Joined, Names
from longwave.spec import Spec

TYPES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
PREFIX, OUT = "model.", "lm_head.weight"
BUFFERS = (r"rotary_emb\.inv_freq$",)


def spec(config: Config) -> Spec:
    kind = config.take("model_type")
    config.must("hidden_act", "silu")
    bias = kind == "qwen2" or config.flag("attention_bias", False)
    n_heads, d_model = config.size("num_attention_heads"), config.size("hidden_size")
    base, scaling, _ = config.rotary()
    window = config.size_or_none("sliding_window")
    config.ignore("max_window_layers", "is_llama_config")
    config.must("rope_interleaved", False)
    if kind == "qwen2":
        config.must("use_sliding_window", False)
        window = None
    n_layers = config.layers("num_hidden_layers")
    config.must("layer_types", None, ["full_attention" if window is None else "sliding_attention"] * n_layers)
    d_key = config.size_or_none("head_dim") or max(1, d_model // n_heads)
    attention = Spec("attention", n_heads=n_heads, n_kv_heads=config.size("num_key_value_heads", n_heads), d_key=d_key,
                     rope_base=base, rope_scaling=scaling, window=window, bias=bias,
                     bias_out=bias and kind != "qwen2")  # fmt: skip
    ffn = Spec("ffn", kind="swiglu", d_hidden=config.size("intermediate_size"), bias=config.flag("mlp_bias", False))
    return Spec("language_model", d_model=d_model, vocab=config.size("vocab_size"),
                tied=config.flag("tie_word_embeddings", False),
                norm=norm("rms", config.number("rms_norm_eps", 1e-6)),
                blocks=[[attention, ffn]] * n_layers)  # fmt: skip


def config(model: LanguageModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    attention, ffn = (branch.mixer for branch in layers[0].parts())
    biases = [linear.bias is not None for linear in (attention.qkv, attention.out)]
    kind = "qwen2" if biases == [True, False] else "mistral" if attention.window else "llama"
    own: dict[str, dict[str, Any]] = {
        "llama": dict(attention_bias=biases[0], mlp_bias=ffn.out.bias is not None),
        "mistral": dict(sliding_window=attention.window),
        "qwen2": dict(use_sliding_window=False),
    }
    return dict(
        model_type=kind, hidden_size=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings,
        num_hidden_layers=len(layers), num_attention_heads=attention.n_heads, head_dim=attention.d_key,
        num_key_value_heads=attention.n_kv_heads, intermediate_size=ffn.out.in_features, hidden_act="silu",
        rope_parameters=rope_parameters(attention.rope_base, attention.rope_scaling),
        rms_norm_eps=model.backbone.norm.eps, tie_word_embeddings=model.unembed is None, **own[kind],
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "model.embed_tokens.weight", "backbone.norm.weight": "model.norm.weight"}
    if model.unembed is not None:
        found["unembed.weight"] = OUT
    for i, layer in enumerate(model.backbone.parts()):
        ours, theirs, a = f"backbone.{i}", f"model.layers.{i}", layer.parts()[0].mixer
        found[f"{ours}.0.norm.weight"] = f"{theirs}.input_layernorm.weight"
        found[f"{ours}.1.norm.weight"] = f"{theirs}.post_attention_layernorm.weight"
        sizes = (a.n_heads * a.d_key, a.n_kv_heads * a.d_key, a.n_kv_heads * a.d_value)
        for kind in ("weight", "bias"):
            parts = {
                "0.mixer.qkv": Joined(tuple(f"{theirs}.self_attn.{each}_proj.{kind}" for each in "qkv"), sizes),
                "0.mixer.out": f"{theirs}.self_attn.o_proj.{kind}",
                "1.mixer.project": Joined(tuple(f"{theirs}.mlp.{each}_proj.{kind}" for each in ("gate", "up"))),
                "1.mixer.out": f"{theirs}.mlp.down_proj.{kind}",
            }
            for mine, part in parts.items():
                branch, name = mine.split(".mixer.")
                if getattr(getattr(layer.parts()[int(branch)].mixer, name), kind) is not None:
                    found[f"{ours}.{mine}.{kind}"] = part
    return found
