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
    return Spec("language_model", d_model=d_model, vocab=vocab, dropout=dropout, init_std=None,
                blocks=layers(mixer, n_layers, ffn))  # fmt: skip


def gpt1(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # heads
    context: int = 512,  # rows of the table of positions
    vocab: int = 40478,  # tokens
    dropout: float = 0.1,  # of embeddings, attention and branches, in training
) -> Spec:
    """GPT (Radford et al. 2018): learned positions, a norm after every sum."""
    spec = gpt2(d_model=d_model, n_layers=n_layers, n_heads=n_heads, context=context, vocab=vocab, dropout=dropout)
    positions, *rest = spec.options["blocks"]
    return spec.but(residual="post", blocks=[positions.but(residual="pre"), *rest])


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
        Spec("ffn", kind="gelu_tanh", bias=True),
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


def gpt_neo(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # heads
    window: int = 256,  # what every other layer sees of the past
    context: int = 2048,  # rows of the table of positions
    vocab: int = 50257,  # byte-level BPE
    dropout: float = 0.0,  # of embeddings, attention and branches, in training
) -> Spec:
    """GPT-Neo (Black et al. 2021), sizes of the 125M model: GPT-3's layers, with scores that no width divides."""
    spec = gpt3(d_model=d_model, n_layers=n_layers, n_heads=n_heads, window=window, context=context, vocab=vocab,
                dropout=dropout)  # fmt: skip
    positions, *layers = spec.options["blocks"]
    unlike = dict(score="dot", bias=False, bias_out=True)
    return spec.but(blocks=[positions, *[(mixer.but(**unlike), ffn) for mixer, ffn in layers]])


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
    attention = Spec("attention", n_heads=n_heads, n_kv_heads=n_kv_heads, rope_base=rope_base)
    return _grouped(attention, d_model, n_layers, d_hidden, vocab, tied)


def mistral(
    *,
    d_model: int = 4096,  # width
    n_layers: int = 32,  # layers
    n_heads: int = 32,  # heads of queries
    n_kv_heads: int = 8,  # heads of keys and values
    d_hidden: int = 14336,  # hidden width of the feed-forward network
    window: int | None = 4096,  # what a layer sees of the past; None: all
    rope_base: float = 10000.0,  # the longest rotary wavelength is 2 pi times this
    vocab: int = 32000,  # tokens
    tied: bool = False,  # the embedding is also the output matrix
) -> Spec:
    """Mistral (Jiang et al. 2023), sizes of the 7B model: Llama with a window."""
    attention = Spec("attention", n_heads=n_heads, n_kv_heads=n_kv_heads, rope_base=rope_base, window=window)
    return _grouped(attention, d_model, n_layers, d_hidden, vocab, tied)


def qwen2(
    *,
    d_model: int = 896,  # width
    n_layers: int = 24,  # layers
    n_heads: int = 14,  # heads of queries
    n_kv_heads: int = 2,  # heads of keys and values
    d_hidden: int = 4864,  # hidden width of the feed-forward network
    rope_base: float = 1000000.0,  # the longest rotary wavelength is 2 pi times this
    vocab: int = 151936,  # tokens
    tied: bool = True,  # the embedding is also the output matrix
) -> Spec:
    """Qwen 2 (Yang et al. 2024), sizes of the 0.5B model: Llama with biases for queries, keys and values."""
    attention = Spec("attention", n_heads=n_heads, n_kv_heads=n_kv_heads, rope_base=rope_base, bias=True,
                     bias_out=False)  # fmt: skip
    return _grouped(attention, d_model, n_layers, d_hidden, vocab, tied).but(norm=Spec("rms", eps=1e-6))


def deepseek(
    *,
    d_model: int = 2048,  # width
    n_layers: int = 27,  # layers
    n_dense: int = 1,  # the first layers, whose feed-forward network is one
    n_heads: int = 16,  # heads
    d_latent: int = 512,  # width of the latent that keys and values are made from
    d_query: int | None = None,  # width of a latent of the queries; None: they have none
    d_key: int = 128,  # width of a head's queries and keys without position
    d_rope: int = 64,  # width of the rotary part
    d_value: int = 128,  # width of a head's values
    d_hidden: int = 10944,  # hidden width of a dense feed-forward network
    d_expert: int = 1408,  # hidden width of an expert
    n_experts: int = 64,  # experts to choose from
    top_k: int = 6,  # experts that a token goes through
    n_shared: int = 2,  # experts beside them that every token goes through
    n_groups: int | None = None,  # groups of experts, of which only the best are open to a token; None: one
    top_groups: int | None = None,  # open groups; None: half of them
    gate: Literal["softmax", "sigmoid"] = "softmax",  # how scores become gates; sigmoid, normalised: V3
    scale: float = 1.0,  # of the chosen experts' sum
    vocab: int = 102400,  # tokens
) -> Spec:
    """DeepSeek-V2 and V3 (DeepSeek-AI 2024), sizes of V2-Lite: latent attention, shared and routed experts."""
    mixer = Spec("mla", n_heads=n_heads, d_latent=d_latent, d_query=d_query, d_key=d_key, d_rope=d_rope,
                 d_value=d_value)  # fmt: skip
    dense = Spec("ffn", kind="swiglu", d_hidden=d_hidden)
    routed = Spec("moe", n_experts=n_experts, top_k=top_k, d_hidden=d_expert, gate=gate, normalised=gate == "sigmoid",
                  n_shared=n_shared, n_groups=n_groups, top_groups=top_groups, scale=scale)  # fmt: skip
    blocks = [[mixer, dense if i < n_dense else routed] for i in range(n_layers)]
    return Spec("language_model", d_model=d_model, vocab=vocab, norm=Spec("rms", eps=1e-6), tied=False, blocks=blocks)


def mamba(
    *,
    d_model: int = 768,  # width
    n_layers: int = 24,  # layers
    d_state: int = 16,  # numbers of state a channel
    vocab: int = 50280,  # tokens
) -> Spec:
    """Mamba (Gu and Dao 2023), sizes of the 130M model: nothing but Mamba layers."""
    return Spec("language_model", d_model=d_model, vocab=vocab, blocks=[Spec("mamba", d_state=d_state)] * n_layers)


def mamba2(
    *,
    d_model: int = 768,  # width
    n_layers: int = 24,  # layers
    d_state: int = 128,  # numbers of state a channel
    n_heads: int = 24,  # heads, each with its own decay
    n_groups: int = 1,  # groups of heads, each with its own B and C
    vocab: int = 50288,  # tokens
) -> Spec:
    """Mamba-2 (Dao and Gu 2024), sizes of the 130M model: nothing but Mamba-2 layers."""
    mixer = Spec("mamba2", d_state=d_state, n_heads=n_heads, n_groups=n_groups)
    return Spec("language_model", d_model=d_model, vocab=vocab, blocks=[mixer] * n_layers)


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
    return Spec("language_model", d_model=d_model, vocab=vocab, init_std=None, blocks=blocks)


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


def _grouped(attention: Spec, d_model: int, n_layers: int, d_hidden: int, vocab: int, tied: bool) -> Spec:
    layer = [attention, Spec("ffn", kind="swiglu", d_hidden=d_hidden)]
    return Spec("language_model", d_model=d_model, vocab=vocab, tied=tied, blocks=[layer] * n_layers)
