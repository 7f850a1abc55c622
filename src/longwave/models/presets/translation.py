"""Encoders and decoders: from one sequence to another. Words of both languages share one embedding."""

from typing import Literal

from longwave.spec import Spec

Cell = Literal["lstm", "gru"]


def transformer(
    *,
    d_model: int = 512,  # width
    n_layers: int = 6,  # layers of the encoder, and of the decoder
    n_heads: int = 8,  # heads
    d_hidden: int = 2048,  # hidden width of the feed-forward networks
    vocab: int = 37000,  # tokens of both languages
    residual: Literal["post", "pre"] = "post",  # where the norm stands; before a branch it learns faster
    dropout: float = 0.1,  # of embeddings and branches, in training
) -> Spec:
    """The Transformer (Vaswani et al. 2017), base: sinusoidal positions, a norm after every sum, one embedding."""
    positions = Spec("branch", mixer=Spec("positions"), norm="none", residual="pre")
    attention = Spec("attention", n_heads=n_heads, position="none")
    ffn = Spec("ffn", kind="relu", d_hidden=d_hidden, bias=True)
    encoder = [positions, *[[attention.but(causal=False), ffn]] * n_layers]
    decoder = [positions, *[[attention, Spec("cross", n_heads=n_heads), ffn]] * n_layers]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, residual=residual, dropout=dropout, encoder=encoder,
                decoder=decoder)  # fmt: skip


def transformer_big(
    *,
    d_model: int = 1024,  # width
    n_layers: int = 6,  # layers of the encoder, and of the decoder
    n_heads: int = 16,  # heads
    d_hidden: int = 4096,  # hidden width of the feed-forward networks
    vocab: int = 37000,  # tokens of both languages
    dropout: float = 0.3,  # of embeddings and branches, in training
) -> Spec:
    """The Transformer (Vaswani et al. 2017), big."""
    return transformer(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_hidden=d_hidden, vocab=vocab,
                       dropout=dropout)  # fmt: skip


def rnn_seq2seq(
    *,
    mixer: Cell = "lstm",  # the recurrent cell
    d_model: int = 1000,  # width
    n_layers: int = 4,  # layers of the encoder, and of the decoder
    vocab: int = 80000,  # tokens of both languages
    dropout: float = 0.0,  # of embeddings and layers, in training
) -> Spec:
    """Sequence to sequence (Sutskever et al. 2014): the decoder knows of the source only the encoder's last state."""
    layers = [_bare(Spec(mixer))] * n_layers
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="none", dropout=dropout, encoder=layers, decoder=layers)


def rnn_attention(
    *,
    d_model: int = 1000,  # width
    vocab: int = 30000,  # tokens of both languages
    dropout: float = 0.0,  # of embeddings and layers, in training
) -> Spec:
    """RNNsearch (Bahdanau et al. 2015): a GRU reads both ways, another looks back before every word; the weights of
    that alignment are recorded as "weights".
    """
    encoder, decoder = [_bare(Spec("bidirectional", mixer=Spec("gru")))], [_bare(Spec("additive"))]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="none", dropout=dropout, encoder=encoder, decoder=decoder)


def gnmt(
    *,
    d_model: int = 1024,  # width
    n_layers: int = 8,  # layers of the encoder, and of the decoder
    vocab: int = 32000,  # tokens of the target
    source_vocab: int | None = None,  # tokens of the source; None: as many
    dropout: float = 0.2,  # of embeddings and layers, in training
) -> Spec:
    """GNMT (Wu et al. 2016): LSTMs with residuals from the third on, the encoder's first reads both ways; the decoder's
    first looks the source up, and all of them read what it found.
    """

    def upper(lstm: Spec) -> list[Spec]:
        return [_bare(lstm), *[Spec("branch", mixer=lstm, norm="none", residual="pre")] * (n_layers - 2)]

    encoder = [_bare(Spec("bidirectional", mixer=Spec("lstm"))), *upper(Spec("lstm"))]
    decoder = [_bare(Spec("additive", cell="lstm", hand_on=True)), *upper(Spec("lstm", d_context=d_model))]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, source_vocab=source_vocab or vocab, tied=False, norm="none",
                scaled=False, bias=True, dropout=dropout, encoder=encoder, decoder=decoder)  # fmt: skip


def deep_att(
    *,
    d_model: int = 512,  # width
    encoder_levels: int = 9,  # LSTMs on one another that read each way
    decoder_levels: int = 6,  # LSTMs above the decoder's first, which looks the source up
    vocab: int = 30000,  # tokens of the target
    source_vocab: int | None = None,  # tokens of the source; None: as many
    dropout: float = 0.1,  # of embeddings and layers, in training
) -> Spec:
    """Deep-Att (Zhou et al. 2016): deep stacks of LSTMs with fast-forward connections, the encoder's in two columns."""

    def stack(levels: int) -> Spec:
        return Spec("fast_forward", levels=levels, dropout=dropout)

    encoder = [_bare(Spec("bidirectional", mixer=stack(encoder_levels)))]
    decoder = [_bare(Spec("additive", cell="lstm")), _bare(stack(decoder_levels))]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, source_vocab=source_vocab or vocab, tied=False, norm="none",
                scaled=False, bias=True, dropout=dropout, encoder=encoder, decoder=decoder)  # fmt: skip


def lstm_moe(
    *,
    d_model: int = 512,  # width
    d_cell: int = 2048,  # width of the LSTMs' cells, which are projected to the model's
    n_experts: int = 2048,  # networks of a mixture
    top_k: int = 4,  # networks that a token goes through
    d_hidden: int = 2048,  # hidden width of each
    vocab: int = 32000,  # tokens of the target
    source_vocab: int | None = None,  # tokens of the source; None: as many
    dropout: float = 0.2,  # of embeddings and layers, in training
) -> Spec:
    """LSTMs and sparsely gated mixtures of experts (Shazeer et al. 2017, appendix E): GNMT with fewer layers, and one
    mixture in the encoder and one in the decoder. Here they are flat, gated by noisy top-k, and no sigmoid follows.
    """

    def beside(mixer: Spec) -> Spec:
        return Spec("branch", mixer=mixer, norm="none", residual="pre")

    lstm = Spec("lstmp", d_cell=d_cell)
    mixture = Spec("moe", n_experts=n_experts, top_k=top_k, d_hidden=d_hidden, kind="relu", gate="noisy")
    encoder = [Spec("bidirectional", mixer=lstm), lstm, mixture, lstm]
    decoder = [Spec("additive", cell="lstm", d_cell=d_cell), mixture, lstm]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, source_vocab=source_vocab or vocab, tied=False, norm="none",
                scaled=False, bias=True, dropout=dropout, encoder=[beside(each) for each in encoder],
                decoder=[beside(each) for each in decoder])  # fmt: skip


def bytenet(
    *,
    d_model: int = 800,  # width
    n_sets: int = 6,  # sets of blocks, in the encoder and in the decoder
    levels: int = 5,  # blocks a set, of dilation 1, 2, 4 ...
    vocab: int = 256,  # tokens of both languages; 256 are bytes
    dropout: float = 0.0,  # of embeddings and sets, in training
) -> Spec:
    """ByteNet (Kalchbrenner et al. 2016): dilated convolutions, the decoder's on top of the encoder's columns."""
    encoder = [_bare(Spec("bytenet", levels=levels, causal=False))] * n_sets
    unfold = Spec("branch", mixer=Spec("unfold"), norm="none", residual="pre")
    decoder = [unfold, *[_bare(Spec("bytenet", levels=levels))] * n_sets]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="layer", residual="pre", dropout=dropout,
                encoder=encoder, decoder=decoder)  # fmt: skip


def convs2s(
    *,
    d_model: int = 512,  # width
    n_layers: int = 15,  # layers of the encoder, and of the decoder
    taps: int = 3,  # of each convolution
    longest: int = 1024,  # tokens of the longest sentence
    vocab: int = 40000,  # tokens of both languages
    dropout: float = 0.2,  # of embeddings and convolutions, in training
) -> Spec:
    """ConvS2S (Gehring et al. 2017): gated convolutions, an attention to the source after each of the decoder's."""
    positions = Spec("branch", mixer=Spec("positions", kind="learned", longest=longest), norm="none", residual="pre")
    layer = Spec("convs2s", levels=1, taps=taps, dropout=dropout)
    look = Spec("branch", mixer=Spec("cross", n_heads=1, bias=True), norm="none", residual="pre")
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="none", dropout=dropout,
                encoder=[positions, *[_bare(layer.but(causal=False))] * n_layers],
                decoder=[positions, *[[_bare(layer), look]] * n_layers])  # fmt: skip


def _bare(mixer: Spec) -> Spec:
    """A mixer without a norm, and with no residual but its own."""
    return Spec("branch", mixer=mixer, norm="none", residual="none")
