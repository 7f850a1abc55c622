"""Marian (Junczys-Dowmunt et al. 2018), the opus-mt models: the encoder and decoder of Vaswani et al. 2017, with sines
before cosines and a bias a token.
"""

from typing import Any

from torch import Tensor

from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.config import Config
from longwave.models.weights.names import Joined, Names, Through
from longwave.spec import Spec

TYPES = {"marian": "MarianMTModel"}
PREFIX, OUT = "model.", "lm_head.weight"
TIED = {OUT: "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight"}  # fmt: skip
BUFFERS = (r"embed_positions\.weight$",)
BRANCHES = dict(encoder=("self_attn", "final"), decoder=("self_attn", "encoder_attn", "final"))


def spec(config: Config) -> Spec:
    config.must("share_encoder_decoder_embeddings", True)
    config.must("tie_word_embeddings", True)
    config.must("is_encoder_decoder", True)
    config.must("is_decoder", False)
    config.must("normalize_before", False)
    config.must("add_final_layer_norm", False)
    config.must("normalize_embedding", False)
    config.must("static_position_embeddings", True)
    config.must("add_bias_logits", False)
    config.must("chunk_size_feed_forward", 0)
    vocab = config.size("vocab_size")
    config.must("decoder_vocab_size", vocab)
    config.ignore(*SEARCH)
    heads, hidden = (both(config, name) for name in ("attention_heads", "ffn_dim"))
    kind = {"silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu"}.get(config.take("activation_function"))
    config.must("activation_function", *(["silu", "swish", "relu", "gelu"] if kind else ["silu"]))
    layers = [config.layers(f"{side}_layers") for side in BRANCHES]
    config.must("num_hidden_layers", layers[0])
    positions = Spec("branch", mixer=Spec("positions", halves=True), norm="none", residual="pre")
    look = Spec("attention", n_heads=heads, position="none", bias=True)
    ffn = Spec("ffn", kind=kind, d_hidden=hidden, bias=True)
    decoder = [look, Spec("cross", n_heads=heads, bias=True), ffn]
    return Spec("seq2seq", d_model=config.size("d_model"), vocab=vocab, dropout=config.number("dropout", 0.1),
                scaled=config.flag("scale_embedding", False), bias=True,
                encoder=[positions, *[[look.but(causal=False), ffn]] * layers[0]],
                decoder=[positions, *[decoder] * layers[1]])  # fmt: skip


SEARCH = ("bad_words_ids", "decoder_start_token_id", "early_stopping", "encoder_layerdrop", "decoder_layerdrop",
          "activation_dropout", "forced_eos_token_id", "init_std", "length_penalty", "max_length", "num_beams",
          "extra_pos_embeddings", "classif_dropout")  # fmt: skip


def config(model: Seq2Seq) -> dict[str, Any]:
    vocab = len(model.out)
    return dict(
        **sizes(model), vocab_size=vocab, decoder_vocab_size=vocab, share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True, is_encoder_decoder=True,
        pad_token_id=vocab - 1, decoder_start_token_id=vocab - 1, eos_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip


def sizes(model: Seq2Seq) -> dict[str, Any]:
    """What the config says of the layers, and how they are used."""
    layers = {side: getattr(model, side).parts()[1:] for side in BRANCHES}
    found: dict[str, Any] = {}
    for side, blocks in layers.items():
        found[f"{side}_layers"] = len(blocks)
        found[f"{side}_attention_heads"] = blocks[0].parts()[0].mixer.n_heads
        found[f"{side}_ffn_dim"] = blocks[0].parts()[-1].mixer.out.in_features
    return dict(**found, d_model=model.embed.embedding_dim, scale_embedding=model.scale != 1.0,
                activation_function=layers["encoder"][0].parts()[-1].mixer.kind,
                dropout=model.dropout.p)  # fmt: skip


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What transformers is asked for the report: the same tokens are the source and the target."""
    return tokens, {"decoder_input_ids": tokens}


def names(model: Seq2Seq) -> Names:
    found: dict[str, Any] = {
        "embed.weight": "model.shared.weight",
        "bias": Through("final_logits_bias", lambda t: t[0], lambda t: t[None]),
    }
    for side, branches in BRANCHES.items():
        for i in range(1, len(getattr(model, side).parts())):
            for b, name in enumerate(branches):
                for kind in ("weight", "bias"):
                    found.update(branch(f"{side}.{i}.{b}", f"model.{side}.layers.{i - 1}", name, kind))
    return found


def branch(ours: str, theirs: str, name: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {f"{ours}.norm.{kind}": f"{theirs}.{name}_layer_norm.{kind}"}
    if name == "final":
        return {**found, f"{ours}.mixer.project.{kind}": f"{theirs}.fc1.{kind}",
                f"{ours}.mixer.out.{kind}": f"{theirs}.fc2.{kind}"}  # fmt: skip
    q, *kv = (f"{theirs}.{name}.{each}_proj.{kind}" for each in "qkv")
    if name == "self_attn":
        found[f"{ours}.mixer.qkv.{kind}"] = Joined((q, *kv))
    else:
        found |= {f"{ours}.mixer.q.{kind}": q, f"{ours}.mixer.kv.{kind}": Joined(tuple(kv))}
    return {**found, f"{ours}.mixer.out.{kind}": f"{theirs}.{name}.out_proj.{kind}"}


def both(config: Config, name: str) -> int:
    """The decoder's is the encoder's."""
    size = config.size(f"encoder_{name}")
    config.must(f"decoder_{name}", size)
    return size
