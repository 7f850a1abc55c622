"""A Vision Transformer that GPT-2 looks up, as transformers puts two models together: the layout of
nlpconnect/vit-gpt2-image-captioning.
"""

from typing import Any

import torch
from torch import Tensor

from longwave.errors import UserError
from longwave.models.image_model import ImageModel
from longwave.models.seq2seq import Seq2Seq
from longwave.models.weights.config import Config
from longwave.models.weights.families import gpt2, vit
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"vision-encoder-decoder": "VisionEncoderDecoderModel"}
PREFIX, OUT = "encoder.", "decoder.lm_head.weight"
BUFFERS = (r"\.(cross)?att(entio)?n\.(masked_)?bias$", r"^encoder\.pooler\.dense\.")
LOOK = ("ln_cross_attn", {"q": "crossattention.q_attn", "kv": "crossattention.c_attn", "out": "crossattention.c_proj"})
BRANCHES = [gpt2.BRANCHES[0], LOOK, gpt2.BRANCHES[1]]
SEARCH = {  # how a text is searched, and what files of old say of every model: nothing that is computed
    "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty",
    "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "is_decoder", "is_encoder_decoder", "length_penalty", "max_length",
    "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_scores", "prefix", "pruned_heads", "remove_invalid_values", "repetition_penalty",
    "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens", "temperature", "tf_legacy_loss",
    "tie_encoder_decoder", "top_k", "top_p", "torchscript", "typical_p", "use_bfloat16",
}  # fmt: skip


def spec(config: Config) -> Spec:
    config.must("is_encoder_decoder", True)
    config.ignore("tie_word_embeddings", *SEARCH)
    encoder, decoder = _part(config, "encoder", "vit", vit), _part(config, "decoder", "gpt2", gpt2)
    wide, width = (part.options["d_model"] for part in (encoder, decoder))
    if wide != width:
        raise UserError(f"{config.where}: the decoder is {width} wide, what it looks up {wide}: they must be alike")
    positions, *layers = decoder.options["blocks"]
    looking = [[own, Spec("cross", n_heads=own.options["n_heads"], bias=True), ffn] for own, ffn in layers]
    return Spec("seq2seq", d_model=width, vocab=decoder.options["vocab"], norm=decoder.options["norm"], residual="pre",
                scaled=False, init_std=0.02, dropout=decoder.options["dropout"], encoder=encoder,
                decoder=[positions, *looking])  # fmt: skip


def _part(config: Config, name: str, kind: str, family: Any) -> Spec:
    """One of the two, as its family reads it alone."""
    given, where = config.take(name), f"{config.where}, {name}"
    if not isinstance(given, dict) or given.get("model_type") != kind:
        raise UserError(f"{where} must be a {kind}, got {str(given)[:40]}")
    values = {key: value for key, value in given.items() if key not in SEARCH}
    looks = values.pop("add_cross_attention", False)
    if looks is not (name == "decoder"):
        raise UserError(f"{where}: 'add_cross_attention' is {str(looks)[:40]}, longwave has {name == 'decoder'}")
    part = Config(values, where)
    if name == "encoder":
        part.ignore("tie_word_embeddings")  # it has no words
    found: Spec = family.spec(part)
    part.done()
    return found


def config(model: Seq2Seq) -> dict[str, Any]:
    end = model.n_tokens - 1  # the last of GPT-2's begins and ends a text
    return dict(
        encoder={"model_type": "vit", **vit.config(model.encoder)},  # type: ignore[arg-type]
        decoder={"model_type": "gpt2", "add_cross_attention": True, "is_decoder": True, "bos_token_id": end,
                 "eos_token_id": end, **gpt2.sizes(model.embed, model.decoder)},
        is_encoder_decoder=True, decoder_start_token_id=end, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Images, and the tokens of their captions."""
    size, channels = (values["encoder"][name] for name in ("image_size", "num_channels"))
    images = torch.randn(len(tokens), channels, size, size, generator=torch.Generator().manual_seed(0))
    return images, {"decoder_input_ids": tokens}


def names(model: Seq2Seq) -> Names:
    assert isinstance(model.encoder, ImageModel)
    encoder = {f"encoder.{ours}": theirs for ours, theirs in vit.names(model.encoder, PREFIX).items()}
    n_layers = len(model.decoder.parts()) - 1
    return {**gpt2.body("decoder", "decoder.transformer.", n_layers, BRANCHES), **encoder}
