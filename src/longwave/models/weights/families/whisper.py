"""Whisper (Radford et al. 2023), as transformers names it and as its authors' .pt do. Their keys have no bias: in a
softmax it would change nothing. Ours is zero on the way in, and left out on the way out.
"""

from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.models.presets import speech
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.config import Config
from longwave.models.weights.names import Joined, Names, Own
from longwave.models.weights.source import Source
from longwave.spec import Spec

TYPES = {"whisper": "WhisperForConditionalGeneration"}
PREFIX, OUT, MARK = "model.", "proj_out.weight", "decoder.token_embedding.weight"
ORIGINAL = {
    r"^(en|de)coder\.": r"model.\1coder.", r"coder\.blocks\.": "coder.layers.",
    r"\.token_embedding\.": ".embed_tokens.",
    r"\.positional_embedding$": ".embed_positions.weight", r"\.(ln_post|ln)\.": ".layer_norm.",
    r"\.attn_ln\.": ".self_attn_layer_norm.", r"\.cross_attn_ln\.": ".encoder_attn_layer_norm.",
    r"\.mlp_ln\.": ".final_layer_norm.", r"\.mlp\.0\.": ".fc1.", r"\.mlp\.2\.": ".fc2.", r"\.attn\.": ".self_attn.",
    r"\.cross_attn\.": ".encoder_attn.", r"_attn\.query\.": "_attn.q_proj.", r"_attn\.key\.": "_attn.k_proj.",
    r"_attn\.value\.": "_attn.v_proj.", r"_attn\.out\.": "_attn.out_proj.",
}  # fmt: skip
SIZES = dict(
    num_mel_bins="n_mels", vocab_size="n_vocab", d_model="n_audio_state", max_source_positions="n_audio_ctx",
    max_target_positions="n_text_ctx", encoder_layers="n_audio_layer", decoder_layers="n_text_layer",
    encoder_attention_heads="n_audio_head", decoder_attention_heads="n_text_head",
)  # fmt: skip
TOLD = ("decoder_start_token_id", "suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids", "max_length",
        "alignment_heads", "lang_ids", "median_filter_width", "num_hidden_layers", "activation_dropout", "init_std",
        "encoder_layerdrop", "decoder_layerdrop", "apply_spec_augment", "classifier_proj_size", "mask_time_prob",
        "mask_time_length", "mask_time_min_masks", "mask_feature_prob", "mask_feature_length",
        "mask_feature_min_masks")  # fmt: skip
BRANCHES = dict(encoder=("self_attn", "final"), decoder=("self_attn", "encoder_attn", "final"))


def spec(config: Config) -> Spec:
    config.must("activation_function", "gelu")
    config.must("scale_embedding", False)
    config.must("tie_word_embeddings", True)
    config.must("is_encoder_decoder", True)
    config.must("use_weighted_layer_sum", False)
    config.must("chunk_size_feed_forward", 0)
    config.ignore(*TOLD)
    heads, hidden = (config.size(f"encoder_{name}") for name in ("attention_heads", "ffn_dim"))
    config.must("decoder_attention_heads", heads)
    config.must("decoder_ffn_dim", hidden)
    return speech.whisper(
        vocab=config.size("vocab_size"), d_model=config.size("d_model"), n_layers=config.layers("encoder_layers"),
        n_decoder_layers=config.layers("decoder_layers"), n_heads=heads, d_hidden=hidden,
        mels=config.size("num_mel_bins"), longest=config.size("max_source_positions"),
        context=config.size("max_target_positions"), dropout=config.number("dropout", 0.0),
    )  # fmt: skip


def config(model: Seq2Seq) -> dict[str, Any]:
    heard: Any = model.encoder
    blocks = dict(encoder=heard.backbone.parts(), decoder=model.decoder.parts()[1:])
    sizes: dict[str, Any] = {}
    for side, some in blocks.items():
        sizes[f"{side}_layers"] = len(some)
        sizes[f"{side}_attention_heads"] = some[0].parts()[0].mixer.n_heads
        sizes[f"{side}_ffn_dim"] = some[0].parts()[-1].mixer.out.in_features
    vocab, width = model.embed.weight.shape
    end = min(50256 + (vocab > 51864), vocab - 2)  # of published vocabularies; those of many languages have one more
    return dict(
        d_model=width, vocab_size=vocab, num_mel_bins=heard.channels, max_source_positions=heard.longest,
        max_target_positions=len(model.decoder.parts()[0].parts()[0].mixer.table), **sizes, dropout=model.dropout.p,
        activation_function="gelu", scale_embedding=model.scale != 1.0, tie_word_embeddings=True,
        is_encoder_decoder=True, eos_token_id=end, bos_token_id=end, pad_token_id=end, decoder_start_token_id=end + 1,
        begin_suppress_tokens=None,
    )  # fmt: skip


def original(source: Source) -> dict[str, Any]:
    """The sizes that lie in a .pt beside its tensors, as transformers would write them."""
    lacking = [name for name in SIZES.values() if name not in source.sizes]
    if lacking:
        raise UserError(f"{source.path} does not say {lacking[0]!r} among its dims")
    sizes = {theirs: source.sizes[name] for theirs, name in SIZES.items()}
    hidden = source.matrix("encoder.blocks.0.mlp.0.weight")[0]
    return dict(model_type="whisper", **sizes, encoder_ffn_dim=hidden, decoder_ffn_dim=hidden)


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Noise of the full length, and the tokens as what was said of it."""
    generator = torch.Generator().manual_seed(0)
    frames = torch.randn(len(tokens), 2 * values["max_source_positions"], values["num_mel_bins"], generator=generator)
    return frames, {"input_features": frames.mT, "decoder_input_ids": tokens}


def names(model: Seq2Seq) -> Names:
    found: dict[str, Any] = {
        "embed.weight": "model.decoder.embed_tokens.weight",
        "encoder.positions": "model.encoder.embed_positions.weight",
        "decoder.0.0.mixer.table": "model.decoder.embed_positions.weight",
    }
    heard: Any = model.encoder
    for kind in ("weight", "bias"):
        found |= {f"encoder.embed.{kind}": f"model.encoder.conv1.{kind}",
                  f"encoder.halve.{kind}": f"model.encoder.conv2.{kind}",
                  f"encoder.backbone.norm.{kind}": f"model.encoder.layer_norm.{kind}",
                  f"decoder.norm.{kind}": f"model.decoder.layer_norm.{kind}"}  # fmt: skip
    layers = [("encoder", f"encoder.backbone.{i}", i) for i in range(len(heard.backbone.parts()))]
    layers += [("decoder", f"decoder.{i + 1}", i) for i in range(len(model.decoder.parts()) - 1)]
    for side, ours, i in layers:
        for b, name in enumerate(BRANCHES[side]):
            found.update(_branch(f"{ours}.{b}", f"model.{side}.layers.{i}", name, model.embed.embedding_dim))
    return found


def _branch(ours: str, theirs: str, name: str, width: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("weight", "bias"):
        found[f"{ours}.norm.{kind}"] = f"{theirs}.{name}_layer_norm.{kind}"
        if name == "final":
            found |= {f"{ours}.mixer.project.{kind}": f"{theirs}.fc1.{kind}",
                      f"{ours}.mixer.out.{kind}": f"{theirs}.fc2.{kind}"}  # fmt: skip
            continue
        q, k, v = (f"{theirs}.{name}.{each}_proj.{kind}" for each in "qkv")
        key = k if kind == "weight" else Own(lambda: torch.zeros(width))
        if name == "self_attn":
            found[f"{ours}.mixer.qkv.{kind}"] = Joined((q, key, v))
        else:
            found |= {f"{ours}.mixer.q.{kind}": q, f"{ours}.mixer.kv.{kind}": Joined((key, v))}
        found[f"{ours}.mixer.out.{kind}"] = f"{theirs}.{name}.out_proj.{kind}"
    return found
