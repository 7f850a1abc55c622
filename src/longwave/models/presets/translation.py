"""Encoders and decoders: from one sequence to another."""

from typing import Literal

from longwave.spec import Spec


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
