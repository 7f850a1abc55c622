"""From an image to a text."""

from typing import Literal

from longwave.models.presets import vision
from longwave.spec import Spec


def show_attend_tell(
    *,
    vocab: int = 10000,  # words
    d_model: int = 512,  # width of the decoder
    coverage: float = 1.0,  # weight of the pull towards looking everywhere equally often
    kind: Literal["basic", "bottleneck"] = "bottleneck",  # of the encoder's blocks
    width: int = 64,  # channels of its first stage; each further one doubles them
    depths: tuple[int, ...] = (3, 4, 6, 3),  # its blocks a stage
    channels: int = 3,  # of an image
    small: bool = False,  # for small images: the first convolution is 3 x 3 and halves nothing
    frozen: bool = False,  # training changes nothing in the encoder
    dropout: float = 0.0,  # of embeddings and the decoder's output, in training
) -> Spec:
    """Show, Attend and Tell (Xu et al. 2015): an LSTM that looks at the grid of a ResNet (theirs is a VGG) by word."""
    make = vision.resnet50 if kind == "bottleneck" else vision.resnet18
    encoder = make(n_classes=None, width=width, depths=depths, channels=channels, small=small, frozen=frozen)
    d_memory = width * 2 ** (len(depths) - 1) * (4 if kind == "bottleneck" else 1)
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="none", residual="pre", scaled=False, bias=True,
                dropout=dropout, encoder=encoder,
                decoder=[Spec("show_attend_tell", d_memory=d_memory, coverage=coverage)])  # fmt: skip


def vit_gpt2(
    *,
    vocab: int = 50257,  # tokens
    size: int = 224,  # rows of an image, and columns
    patch: int = 16,  # rows of a patch, and columns
    channels: int = 3,  # of an image
    d_model: int = 768,  # width of encoder and decoder
    n_layers: int = 12,  # layers of each
    n_heads: int = 12,  # heads
    context: int = 1024,  # rows of the decoder's table of positions
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """A Vision Transformer that GPT-2 looks up by cross attention in every layer (Li et al. 2021 combine such two)."""
    encoder = vision.vit(n_classes=None, size=size, patch=patch, channels=channels, d_model=d_model, n_layers=n_layers,
                         n_heads=n_heads, dropout=dropout)  # fmt: skip
    positions = Spec("branch", mixer=Spec("positions", kind="learned", longest=context), norm="none")
    layer = [
        Spec("attention", n_heads=n_heads, position="none", bias=True),
        Spec("cross", n_heads=n_heads, bias=True),
        Spec("ffn", kind="gelu_tanh", bias=True),
    ]
    return Spec("seq2seq", d_model=d_model, vocab=vocab, norm="layer", residual="pre", scaled=False, init_std=0.02,
                dropout=dropout, encoder=encoder, decoder=[positions, *[layer] * n_layers])  # fmt: skip
