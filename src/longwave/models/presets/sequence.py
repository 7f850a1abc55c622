"""Encoders and classifiers of whole sequences."""

from typing import Any, Literal

from longwave.models.presets._layers import Mixers, both_ways, layers
from longwave.spec import Spec


def masked_lm(
    *,
    mixer: Mixers = "fnet",  # one mixer, or several in turn over the layers: s4d,ffn
    ffn: str | None = "gelu",  # the feed-forward network beside it; None: none
    d_model: int = 192,  # width
    n_layers: int = 4,  # layers
    vocab: int = 257,  # tokens; 256 bytes and a mask
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """Guesses hidden tokens from both sides: sinusoidal positions, then any mixer and a feed-forward network."""
    positions = Spec("branch", mixer=Spec("positions"), norm="none")
    return Spec("sequence_model", d_model=d_model, vocab=vocab, dropout=dropout, norm="layer",
                head=Spec("tag", n_classes=vocab), blocks=[positions, *layers(mixer, n_layers, ffn)])  # fmt: skip


def classifier(
    *,
    n_classes: int,  # what there is to choose from
    mixer: Mixers = "s4d",  # one mixer, or several in turn over the layers: s4d,ffn
    ffn: str | None = None,  # a feed-forward network beside it
    bidirectional: bool = False,  # read each sequence both ways
    d_model: int = 128,  # width
    n_layers: int = 4,  # layers
    vocab: int | None = None,  # tokens, where the input is tokens
    d_input: int | None = None,  # numbers a frame, where it is frames
    head: Literal[
        "classify", "tag", "regress", "predict", "pair"
    ] = "classify",  # a class a sequence, token or pair; numbers
    pool: Literal["mean", "last", "first"] = "mean",  # how a sequence becomes one vector
    norm: Literal["rms", "layer", "batch"] = "rms",  # of branches and of the last layer's output
    pool_norm: Literal["before", "after"] = "before",  # where that last norm stands: before or after pooling
    dropout: float = 0.0,  # of embeddings and branches, in training
    tied_dropout: bool = False,  # of a branch whole channels of a sequence are dropped, not single numbers
) -> Spec:
    """Any mixer as a classifier, tagger or regressor of sequences."""
    blocks = layers(mixer, n_layers, ffn)
    if bidirectional:
        blocks = [[both_ways(reads), *beside] for reads, *beside in blocks]
    pooled: dict[str, Any] = {} if head in ("tag", "predict") else {"pool": pool}
    more: dict[str, Any] = {"norm": norm} if norm != "rms" else {}
    if pooled and pool_norm == "after":
        pooled["norm"], more["last_norm"] = norm, "none"
    if tied_dropout:
        more["tied_dropout"] = True
    return Spec("sequence_model", d_model=d_model, vocab=vocab, d_input=d_input, dropout=dropout,
                head=Spec(head, n_classes=n_classes, **pooled), blocks=blocks, **more)  # fmt: skip


def wavegan(
    *,
    n_classes: int,  # what there is to choose from
    n_samples: int = 16384,  # of the longest sound: 16 times a power of 4
    d_input: int = 1,  # channels of the sound
    width: int = 64,  # channels after the first convolution; each further one doubles them
    shuffle: int = 2,  # phase shuffle by up to so many steps, in training
) -> Spec:
    """WaveGAN's discriminator as a classifier of sounds: convolutions, each a quarter as long and twice as wide."""
    return Spec("wavegan_discriminator", n_classes=n_classes, n_samples=n_samples, d_input=d_input, width=width,
                shuffle=shuffle)  # fmt: skip
