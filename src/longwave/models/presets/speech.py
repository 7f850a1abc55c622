"""From speech to text."""

from longwave.spec import Spec


def whisper(
    *,
    vocab: int = 51864,  # tokens; a multilingual model has one more
    d_model: int = 384,  # width: 512 is "base", 768 "small", 1024 "medium", 1280 "large"
    n_layers: int = 4,  # layers of the encoder: 6, 12, 24, 32
    n_decoder_layers: int | None = None,  # of the decoder; None: as many
    n_heads: int = 6,  # heads: 8, 12, 16, 20
    d_hidden: int | None = None,  # hidden width of the feed-forward networks; None: 4 d_model
    mels: int = 80,  # bands of the spectrogram
    longest: int = 1500,  # places of the encoder, of 20 ms each
    context: int = 448,  # rows of the decoder's table of positions
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """Whisper (Radford et al. 2023), tiny: a log-mel spectrogram, halved in time, that a decoder of text looks up."""
    attention = Spec("attention", n_heads=n_heads, position="none", bias=True)
    ffn = Spec("ffn", kind="gelu", d_hidden=d_hidden or 4 * d_model, bias=True)
    encoder = Spec("audio_model", d_model=d_model, channels=mels, longest=longest, dropout=dropout,
                   blocks=[[attention.but(causal=False), ffn]] * n_layers)  # fmt: skip
    positions = Spec("branch", mixer=Spec("positions", kind="learned", longest=context), norm="none")
    layer = [attention, Spec("cross", n_heads=n_heads, bias=True), ffn]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="layer", residual="pre", scaled=False, init_std=0.02,
                dropout=dropout, encoder=encoder,
                decoder=[positions, *[layer] * (n_decoder_layers or n_layers)])  # fmt: skip
