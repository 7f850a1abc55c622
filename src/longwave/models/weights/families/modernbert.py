"""ModernBERT (Warner et al. 2024)."""

from typing import Any

from longwave.models.presets import encoders
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config, norm
from longwave.models.weights.families.bert import labels
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"modernbert": "ModernBertModel"}
PREFIX, OUT = "model.", "decoder.weight"
HEADS = {"masked": "ModernBertForMaskedLM", "classify": "ModernBertForSequenceClassification",
         "none": "ModernBertModel"}  # fmt: skip
KINDS = ("full_attention", "sliding_attention")

PARTS = {"0.norm": "attn_norm", "0.mixer.qkv": "attn.Wqkv", "0.mixer.out": "attn.Wo", "1.norm": "mlp_norm",
         "1.mixer.project": "mlp.Wi", "1.mixer.out": "mlp.Wo"}  # fmt: skip
ENDS = dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep"))  # theirs may be too large


def spec(config: Config) -> Spec:
    n_layers = config.layers("num_hidden_layers")
    kinds = config.take("layer_types", None)
    every = config.size("global_attn_every_n_layers", _every(kinds, n_layers))
    config.must("layer_types", None, _kinds(n_layers, every))
    for key in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        config.must(key, False)
    for key in ("hidden_activation", "classifier_activation"):
        config.must(key, "gelu")
    for key in ("decoder_bias", "tie_word_embeddings"):
        config.must(key, True)
    # the last two stand in published files, where nothing reads them: norm_eps and rotations hold
    config.ignore("initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile",
                  "repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index", "cls_token_id",
                  "sep_token_id", "embedding_dropout", "mlp_dropout",
                  "layer_norm_eps", "position_embedding_type")  # fmt: skip
    bases = [_base(config, kind, old, base) for kind, old, base in
             zip(KINDS, ("global_rope_theta", "local_rope_theta"), (160000.0, 10000.0), strict=True)]  # fmt: skip
    labels = config.shape("classifier.weight")
    kind: Any = "classify" if labels else "masked" if config.shape("decoder.bias") else "none"
    made = encoders.modernbert(
        d_model=config.size("hidden_size"), n_layers=n_layers, n_heads=config.size("num_attention_heads"),
        d_hidden=config.size("intermediate_size"), vocab=config.size("vocab_size"), every=every,
        window=config.size("local_attention", 128), rope_base=bases[0], rope_base_local=bases[1],
        head=kind, n_classes=labels[0] if labels else 2,
    )  # fmt: skip
    pool, own = config.take("classifier_pooling", "cls"), norm("gain", config.number("norm_eps", 1e-5))
    config.must("classifier_pooling", "cls", "mean")
    head = made.options["head"]
    changed: dict[str, Any] = {} if kind == "none" else {"norm": own}
    if labels:
        changed["pool"] = "first" if pool == "cls" else "mean"
    return made.but(norm=own, head=head.but(**changed))


def _every(kinds: Any, n_layers: int) -> int:
    """How often a layer sees the whole sequence, of a list of their kinds."""
    others = [i for i, kind in enumerate(kinds) if kind == KINDS[0]] if isinstance(kinds, list) else []
    return others[1] if len(others) > 1 else max(1, n_layers) if others else 3


def _kinds(n_layers: int, every: int) -> list[str]:
    return [KINDS[i % every > 0] for i in range(n_layers)]


def _base(config: Config, kind: str, old: str, base: float) -> float:
    """Of the rotation in layers of a kind, as transformers writes it now, or did."""
    base = config.number(old, base)
    given = config.take("rope_parameters", None) or {}
    group = given.get(kind) if isinstance(given, dict) else {}
    rope = Config(group if isinstance(group, dict) else {}, f"{config.where}, rope parameters")
    rope.must("rope_type", "default")
    base = rope.number("rope_theta", base)
    rope.done()
    return base


def config(model: SequenceModel) -> dict[str, Any]:
    layers = model.backbone.parts()
    attention, ffn = (branch.mixer for branch in layers[0].parts())
    seen = [layer.parts()[0].mixer for layer in layers]
    near = next((mixer for mixer in seen if mixer.window is not None), None)
    every = next((i for i, mixer in enumerate(seen) if i and mixer.window is None), len(layers))
    rope = {"full_attention": attention.rope_base, "sliding_attention": near.rope_base if near else 10000.0}
    head = model.spec.options["head"]
    return dict(
        architectures=[HEADS[head.name]], hidden_size=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings,
        num_hidden_layers=len(layers), num_attention_heads=attention.n_heads, intermediate_size=ffn.out.in_features,
        norm_eps=model.backbone.norm.eps, local_attention=2 * (near.window - 1) if near else 128,
        layer_types=_kinds(len(layers), every),
        rope_parameters={kind: dict(rope_type="default", rope_theta=base) for kind, base in rope.items()},
        classifier_pooling="mean" if head.options.get("pool") == "mean" else "cls", **labels(model), **ENDS,
    )  # fmt: skip


def names(model: SequenceModel) -> Names:
    found: dict[str, Any] = {
        "embed.weight": "model.embeddings.tok_embeddings.weight", "embed_norm.weight": "model.embeddings.norm.weight",
        "backbone.norm.weight": "model.final_norm.weight", "head.dense.linear.weight": "head.dense.weight",
        "head.dense.norm.weight": "head.norm.weight", "head.bias": "decoder.bias",
        "head.out.weight": "classifier.weight", "head.out.bias": "classifier.bias",
    }  # fmt: skip
    for i in range(len(model.backbone.parts())):
        found |= {f"backbone.{i}.{mine}.weight": f"model.layers.{i}.{name}.weight" for mine, name in PARTS.items()}
    return found
