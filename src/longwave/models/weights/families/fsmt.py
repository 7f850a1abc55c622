"""FSMT (Ng et al. 2019), fairseq's winners of WMT 19: Vaswani et al. 2017, big, with a vocabulary for each language.

Positions are counted from behind the number of the pad, and the slowest wave is 10000 times as long as the fastest.
"""

from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.config import Config
from longwave.models.weights.families.marian import BRANCHES, both, branch, sizes
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"fsmt": "FSMTForConditionalGeneration"}
PREFIX, OUT = "model.", "model.decoder.output_projection.weight"
TIED = {"model.encoder.embed_tokens.weight": "model.decoder.embed_tokens.weight",
        OUT: "model.decoder.embed_tokens.weight"}  # fmt: skip
BUFFERS = (r"embed_positions\.weight$",)
SEARCH = ("langs", "decoder_start_token_id", "early_stopping", "encoder_layerdrop", "decoder_layerdrop", "num_beams",
          "activation_dropout", "forced_eos_token_id", "init_std", "length_penalty", "max_length", "num_hidden_layers",
          "decoder", "add_bias_logits", "add_final_layer_norm", "normalize_before", "normalize_embedding",
          "static_position_embeddings", "classif_dropout")  # fmt: skip


def spec(config: Config) -> Spec:
    config.must("is_encoder_decoder", True)
    config.ignore(*SEARCH)
    width, pad = config.size("d_model"), config.take("pad_token_id", 1)
    vocab, source = config.size("tgt_vocab_size"), config.size("src_vocab_size")
    tied = config.flag("tie_word_embeddings", False)
    if tied:
        config.must("src_vocab_size", vocab)
    if width < 4 or not isinstance(pad, int) or pad < 0:
        raise UserError(f"{config.where}: no waves of width {width} begin behind the pad {str(pad)[:40]}")
    heads, hidden = (both(config, name) for name in ("attention_heads", "ffn_dim"))
    kind = config.take("activation_function", "relu")
    config.must("activation_function", "relu", "gelu", "silu")
    waves = Spec("positions", halves=True, first=pad + 1, base=_base(width))
    positions = Spec("branch", mixer=waves, norm="none", residual="pre")
    look = Spec("attention", n_heads=heads, position="none", bias=True)
    ffn = Spec("ffn", kind=kind, d_hidden=hidden, bias=True)
    layers = [config.layers(f"{side}_layers") for side in BRANCHES]
    return Spec("seq2seq", d_model=width, vocab=vocab, source_vocab=None if tied else source, tied=tied,
                dropout=config.number("dropout", 0.1), scaled=config.flag("scale_embedding", True),
                encoder=[positions, *[[look.but(causal=False), ffn]] * layers[0]],
                decoder=[positions, *[[look, Spec("cross", n_heads=heads, bias=True), ffn]] * layers[1]])  # fmt: skip


def config(model: Seq2Seq) -> dict[str, Any]:
    source = model.embed_source or model.embed
    pad = model.decoder.parts()[0].parts()[0].mixer.first - 1
    return dict(
        **sizes(model), src_vocab_size=source.num_embeddings, tgt_vocab_size=model.embed.num_embeddings,
        tie_word_embeddings=model.head is None, is_encoder_decoder=True, langs=["source", "target"], pad_token_id=pad,
        eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What transformers is asked for the report: the same tokens, none of them a pad, are the source and the target."""
    tokens = tokens % values["src_vocab_size"]
    tokens = torch.where(tokens == values["pad_token_id"], values["pad_token_id"] + 1, tokens)
    return tokens, {"decoder_input_ids": tokens}


def names(model: Seq2Seq) -> Names:
    found: dict[str, Any] = {"embed.weight": "model.decoder.embed_tokens.weight", "head": OUT,
                             "embed_source.weight": "model.encoder.embed_tokens.weight"}  # fmt: skip
    for side, branches in BRANCHES.items():
        for i in range(1, len(getattr(model, side).parts())):
            for b, name in enumerate(branches):
                for kind in ("weight", "bias"):
                    found.update(branch(f"{side}.{i}.{b}", f"model.{side}.layers.{i - 1}", name, kind))
    return found


def _base(width: int) -> float:
    """Of waves whose last, and not the next one after it, is 10000 times as long as the first."""
    half = width // 2
    return 10000.0 ** (half / (half - 1))
