"""DeepSeek-V2 and V3 (DeepSeek-AI 2024): latent attention, shared and routed experts.

Their rotary channels are stored in pairs (2i, 2i + 1), ours are (i, i + d/2).
"""

from typing import Any

from longwave.models.language_model import LanguageModel
from longwave.models.presets import language
from longwave.models.weights.config import Config, norm, rope_parameters
from longwave.models.weights.names import Absent, Joined, Names, Stacked, in_halves
from longwave.spec import Spec

TYPES = {"deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}
PREFIX, OUT = "model.", "lm_head.weight"
BUFFERS = (r"rotary_emb\.inv_freq$",)


def spec(config: Config) -> Spec:
    third = config.take("model_type") == "deepseek_v3"
    config.must("hidden_act", "silu")
    config.must("attention_bias", False)
    config.must("mlp_bias", False)
    config.must("tie_word_embeddings", False)
    config.must("rope_interleave", True)
    config.must("moe_layer_freq", 1)
    config.must("norm_topk_prob", third)
    config.must("scoring_func", "sigmoid" if third else "softmax")
    config.must("topk_method", "noaux_tc" if third else "greedy")
    config.ignore("aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", "qk_head_dim",
                  "num_local_experts")  # fmt: skip
    heads = config.size("num_attention_heads")
    config.must("num_key_value_heads", heads)
    base, scaling, temperature = config.rotary()
    groups, open_ = config.size_or_none("n_group"), config.size_or_none("topk_group")
    made = language.deepseek(
        d_model=config.size("hidden_size"), n_layers=config.layers("num_hidden_layers"), n_heads=heads,
        n_dense=int(config.number("first_k_dense_replace")), d_latent=config.size("kv_lora_rank"),
        d_query=config.size_or_none("q_lora_rank"), d_key=config.size("qk_nope_head_dim"),
        d_rope=config.size("qk_rope_head_dim"), d_value=config.size("v_head_dim"),
        d_hidden=config.size("intermediate_size"), d_expert=config.size("moe_intermediate_size"),
        n_experts=config.size("n_routed_experts"), top_k=config.size("num_experts_per_tok"),
        n_shared=config.size("n_shared_experts"), gate="sigmoid" if third else "softmax",
        n_groups=groups if third else None, top_groups=open_ if third else None,
        scale=config.number("routed_scaling_factor", 1.0), vocab=config.size("vocab_size"),
    )  # fmt: skip
    turning = dict(rope_base=base, rope_scaling=scaling, temperature=temperature)
    return made.but(norm=norm("rms", config.number("rms_norm_eps", 1e-6)),
                    blocks=[[mixer.but(**turning), ffn] for mixer, ffn in made.options["blocks"]])  # fmt: skip


def config(model: LanguageModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    a, dense = (branch.mixer for branch in layers[0].parts())
    n_dense = sum(hasattr(layer.parts()[1].mixer, "project") for layer in layers)
    moe = layers[-1].parts()[1].mixer
    hidden, third = moe.W_out.shape[-1], moe.gate == "sigmoid"
    own = dict(n_group=moe.n_groups, topk_group=moe.top_groups) if third else dict(topk_method="greedy")
    return dict(
        model_type="deepseek_v3" if third else "deepseek_v2", hidden_size=model.embed.embedding_dim,
        vocab_size=model.embed.num_embeddings, num_hidden_layers=len(layers), num_attention_heads=a.n_heads,
        num_key_value_heads=a.n_heads, kv_lora_rank=a.d_latent, qk_nope_head_dim=a.d_key, qk_rope_head_dim=a.d_rope,
        v_head_dim=a.d_value, q_lora_rank=a.q[0].out_features if len(a.q) > 1 else None, hidden_act="silu",
        rope_parameters=rope_parameters(a.rope_base, a.rope_scaling, a.temperature), first_k_dense_replace=n_dense,
        intermediate_size=dense.out.in_features, moe_intermediate_size=hidden, n_routed_experts=len(moe.router),
        num_experts_per_tok=moe.top_k, n_shared_experts=moe.shared.out.in_features // hidden,
        routed_scaling_factor=moe.scale, norm_topk_prob=third, rms_norm_eps=model.backbone.norm.eps,
        tie_word_embeddings=False, **own,
    )  # fmt: skip


def names(model: LanguageModel) -> Names:
    found: dict[str, Any] = {"embed.weight": "model.embed_tokens.weight", "backbone.norm.weight": "model.norm.weight",
                             "unembed.weight": OUT}  # fmt: skip
    for i, layer in enumerate(model.backbone.parts()):
        ours, theirs = f"backbone.{i}", f"model.layers.{i}"
        a, ffn = (branch.mixer for branch in layer.parts())
        found[f"{ours}.0.norm.weight"] = f"{theirs}.input_layernorm.weight"
        found[f"{ours}.1.norm.weight"] = f"{theirs}.post_attention_layernorm.weight"
        found |= {f"{ours}.0.mixer.{k}": p for k, p in _attention(a, f"{theirs}.self_attn").items()}
        found |= {f"{ours}.1.mixer.{k}": p for k, p in _experts(ffn, f"{theirs}.mlp").items()}
    return found


def _attention(a: Any, theirs: str) -> Names:
    found: dict[str, Any] = {
        "kv_down.weight": in_halves(f"{theirs}.kv_a_proj_with_mqa.weight", 1, a.d_latent, a.d_rope),
        "norm.weight": f"{theirs}.kv_a_layernorm.weight",
        "kv_up.weight": f"{theirs}.kv_b_proj.weight",
        "out.weight": f"{theirs}.o_proj.weight",
    }
    up = "q_proj" if len(a.q) == 1 else "q_b_proj"
    found[f"q.{len(a.q) - 1}.weight"] = in_halves(f"{theirs}.{up}.weight", a.n_heads, a.d_key, a.d_rope)
    if len(a.q) > 1:
        found |= {"q.0.weight": f"{theirs}.q_a_proj.weight", "q.1.weight": f"{theirs}.q_a_layernorm.weight"}
    return found


def _experts(ffn: Any, theirs: str) -> Names:
    def gated(at: str) -> Joined:
        return Joined((f"{at}.gate_proj.weight", f"{at}.up_proj.weight"))

    if hasattr(ffn, "project"):
        return {"project.weight": gated(theirs), "out.weight": f"{theirs}.down_proj.weight"}
    each = [f"{theirs}.experts.{e}" for e in range(len(ffn.router))]
    bias = f"{theirs}.gate.e_score_correction_bias" if ffn.gate == "sigmoid" else Absent()
    return {
        "router": f"{theirs}.gate.weight", "bias": bias, "W_in": Stacked(tuple(gated(at) for at in each)),
        "W_out": Stacked(tuple(f"{at}.down_proj.weight" for at in each)),
        "shared.project.weight": gated(f"{theirs}.shared_experts"),
        "shared.out.weight": f"{theirs}.shared_experts.down_proj.weight",
    }  # fmt: skip
