"""Decoder-only language models."""

from typing import Literal

from longwave.models.presets._layers import Mixers, layers
from longwave.spec import Spec


def lm(
    *,
    mixer: Mixers = "attention",  # one mixer, or several in turn over the layers: gla,attention
    ffn: str | None = "swiglu",  # the feed-forward network beside it; None: none
    d_model: int = 192,  # width
    n_layers: int = 4,  # layers
    vocab: int = 256,  # tokens; 256 are bytes
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """Any mixer as a language model: pre-norm layers of the mixer and a feed-forward network."""
    return Spec("language_model", d_model=d_model, vocab=vocab, dropout=dropout, blocks=layers(mixer, n_layers, ffn))


def gpt2(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # heads
    context: int = 1024,  # rows of the table of positions
    vocab: int = 50257,  # byte-level BPE
    dropout: float = 0.1,  # of embeddings, attention and branches, in training
) -> Spec:
    """GPT-2 (Radford et al. 2019): learned positions, pre-norm, residual weights smaller with depth."""
    positions = Spec("branch", mixer=Spec("positions", kind="learned", longest=context), norm="none")
    layer = [
        Spec("attention", n_heads=n_heads, position="none", bias=True, dropout=dropout),
        Spec("ffn", kind="gelu", bias=True),
    ]
    return Spec("language_model", d_model=d_model, vocab=vocab, norm="layer", dropout=dropout,
                blocks=[positions, *[layer] * n_layers])  # fmt: skip


def gpt3(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # heads
    window: int = 128,  # what every other layer sees of the past
    context: int = 2048,  # rows of the table of positions
    vocab: int = 50257,  # byte-level BPE
    dropout: float = 0.1,  # of embeddings, attention and branches, in training
) -> Spec:
    """GPT-3 (Brown et al. 2020), sizes of the smallest model: GPT-2 with dense and locally banded layers in turn.

    The width of the band is not published; that of the Sparse Transformer's is 128.
    """
    spec = gpt2(d_model=d_model, n_layers=n_layers, n_heads=n_heads, context=context, vocab=vocab, dropout=dropout)
    positions, *dense = spec.options["blocks"]
    layers = [(mixer.but(window=window) if i % 2 else mixer, ffn) for i, (mixer, ffn) in enumerate(dense)]
    return spec.but(blocks=[positions, *layers])


def llama(
    *,
    d_model: int = 2048,  # width
    n_layers: int = 16,  # layers
    n_heads: int = 32,  # heads of queries
    n_kv_heads: int = 8,  # heads of keys and values
    d_hidden: int = 8192,  # hidden width of the feed-forward network
    rope_base: float = 500000.0,  # the longest rotary wavelength is 2 pi times this
    vocab: int = 128256,  # tokens
    tied: bool = True,  # the embedding is also the output matrix
) -> Spec:
    """Llama 3 (Grattafiori et al. 2024), sizes of the 1B model: grouped-query attention, rotary positions, SwiGLU."""
    layer = [
        Spec("attention", n_heads=n_heads, n_kv_heads=n_kv_heads, rope_base=rope_base),
        Spec("ffn", kind="swiglu", d_hidden=d_hidden),
    ]
    return Spec("language_model", d_model=d_model, vocab=vocab, tied=tied, blocks=[layer] * n_layers)


def mamba(
    *,
    d_model: int = 768,  # width
    n_layers: int = 24,  # layers
    d_state: int = 16,  # numbers of state a channel
    vocab: int = 50280,  # tokens
) -> Spec:
    """Mamba (Gu and Dao 2023), sizes of the 130M model: nothing but Mamba layers."""
    return Spec("language_model", d_model=d_model, vocab=vocab, blocks=[Spec("mamba", d_state=d_state)] * n_layers)


def hybrid(
    *,
    mixer: str | Spec = "mamba",  # the recurrent mixer
    every: int = 4,  # one layer in so many is attention
    window: int | None = None,  # the attention layers' window; None: all of the past
    d_model: int = 512,  # width
    n_layers: int = 12,  # layers
    vocab: int = 256,  # tokens
) -> Spec:
    """A recurrent mixer with an attention layer now and then: Jamba (Lieber et al. 2024), Samba (Ren et al. 2024)."""
    recurrent = [mixer if isinstance(mixer, Spec) else Spec(mixer), Spec("ffn")]
    attention = [Spec("attention", window=window), Spec("ffn")]
    blocks = [attention if i % every == every - 1 else recurrent for i in range(n_layers)]
    return Spec("language_model", d_model=d_model, vocab=vocab, blocks=blocks)


def lstm(
    *,
    d_model: int = 512,  # width
    n_layers: int = 2,  # layers
    vocab: int = 256,  # tokens
    dropout: float = 0.0,  # between layers, in training
    residual: Literal["pre", "none"] = "none",  # "none": layers on one another, as Zaremba et al. 2014
) -> Spec:
    """A stack of LSTMs (Zaremba et al. 2014)."""
    return Spec("language_model", d_model=d_model, vocab=vocab, dropout=dropout, norm="none", residual=residual,
                init_std=None, blocks=[Spec("lstm")] * n_layers)  # fmt: skip


def rwkv4(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    vocab: int = 50277,  # tokens
) -> Spec:
    """RWKV-4 (Peng et al. 2023), sizes of the 169M model: a time mix and a channel mix a layer, embeddings normed."""
    depths = [i / n_layers for i in range(n_layers)]
    blocks = [[Spec("rwkv4", depth=depth), Spec("channel_mix", depth=depth)] for depth in depths]
    return Spec(
        "language_model", d_model=d_model, vocab=vocab, norm="layer", tied=False, embed_norm=True, blocks=blocks
    )


def rwkv7(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int | None = None,  # heads; None: as many as 64 channels fit
    vocab: int = 65536,  # tokens
) -> Spec:
    """RWKV-7 (Peng et al. 2025), sizes of the 191M model: later layers mix the first one's value into their own."""
    heads = n_heads or max(1, d_model // 64)
    blocks = [
        [
            Spec("rwkv7", n_heads=heads, first=i == 0, depth=i / n_layers),
            Spec("channel_mix", gated=False, depth=i / n_layers),
        ]
        for i in range(n_layers)
    ]
    return Spec(
        "language_model", d_model=d_model, vocab=vocab, norm="layer", tied=False, embed_norm=True, blocks=blocks
    )
