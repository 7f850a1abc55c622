"""Models of images."""

from typing import Literal

from longwave.spec import Spec


def vit(
    *,
    n_classes: int | None = 1000,  # what there is to choose from; None: the answer is the features
    size: int = 224,  # rows of an image, and columns
    patch: int = 16,  # rows of a patch, and columns
    channels: int = 3,  # of an image
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # heads
    d_hidden: int | None = None,  # hidden width of the feed-forward networks; None: 4 d_model
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """The Vision Transformer (Dosovitskiy et al. 2021), base: patches as tokens, learned positions, a class token."""
    longest = (size // patch) ** 2 + 1
    positions = Spec("branch", mixer=Spec("positions", kind="learned", longest=longest), norm="none")
    layer = [
        Spec("attention", n_heads=n_heads, position="none", bias=True, causal=False),
        Spec("ffn", kind="gelu", d_hidden=d_hidden or 4 * d_model, bias=True),
    ]
    return Spec("image_model", d_model=d_model, size=size, patch=patch, channels=channels, n_classes=n_classes,
                norm=Spec("layer", eps=1e-12), dropout=dropout, blocks=[positions, *[layer] * n_layers])  # fmt: skip


def resnet18(
    *,
    n_classes: int | None = 1000,  # what there is to choose from; None: the answer is the features
    width: int = 64,  # channels of the first stage; each further one doubles them
    depths: tuple[int, ...] = (2, 2, 2, 2),  # blocks a stage
    channels: int = 3,  # of an image
    small: bool = False,  # for small images: the first convolution is 3 x 3 and halves nothing
    frozen: bool = False,  # training changes neither weights nor statistics
) -> Spec:
    """ResNet-18 (He et al. 2016): stages of pairs of 3 x 3 convolutions."""
    return _resnet("basic", n_classes, width, depths, channels, small, frozen)


def resnet50(
    *,
    n_classes: int | None = 1000,  # what there is to choose from; None: the answer is the features
    width: int = 64,  # channels of the first stage, and a quarter of what it gives; each further one doubles them
    depths: tuple[int, ...] = (3, 4, 6, 3),  # blocks a stage
    channels: int = 3,  # of an image
    small: bool = False,  # for small images: the first convolution is 3 x 3 and halves nothing
    frozen: bool = False,  # training changes neither weights nor statistics
) -> Spec:
    """ResNet-50 (He et al. 2016): stages of bottlenecks; 2048 features."""
    return _resnet("bottleneck", n_classes, width, depths, channels, small, frozen)


def pixelcnn(
    *,
    size: int = 32,  # rows of an image, and columns
    colours: int = 3,  # values of a pixel, each seeing those before it
    levels: int = 256,  # that a value can have
    d_model: int = 192,  # width; a multiple of twice the colours
    n_layers: int = 15,  # layers
    first: int = 7,  # taps of the first convolution
    d_out: int = 96,  # width of the two layers before the softmax
) -> Spec:
    """PixelCNN (van den Oord et al. 2016): images value by value, by masked convolutions."""
    return Spec("pixel_model", kind="cnn", size=size, colours=colours, levels=levels, d_model=d_model,
                n_layers=n_layers, first=first, d_out=d_out)  # fmt: skip


def pixelrnn(
    *,
    kind: Literal["row", "diagonal"] = "diagonal",  # LSTMs along the rows, or two along the diagonals
    size: int = 32,  # rows of an image, and columns
    colours: int = 3,  # values of a pixel, each seeing those before it
    levels: int = 256,  # that a value can have
    d_model: int = 96,  # width; a multiple of twice the colours
    n_layers: int = 7,  # layers
    first: int = 7,  # taps of the first convolution
    d_out: int = 96,  # width of the two layers before the softmax
) -> Spec:
    """PixelRNN (van den Oord et al. 2016): images value by value, by LSTMs in two dimensions."""
    return Spec("pixel_model", kind=kind, size=size, colours=colours, levels=levels, d_model=d_model,
                n_layers=n_layers, first=first, d_out=d_out)  # fmt: skip


def _resnet(
    kind: Literal["basic", "bottleneck"], n_classes: int | None, width: int, depths: tuple[int, ...], channels: int,
    small: bool, frozen: bool,
) -> Spec:  # fmt: skip
    return Spec("resnet", kind=kind, depths=depths, widths=[width * 2**i for i in range(len(depths))], stem=width,
                small=small, channels=channels, n_classes=n_classes, frozen=frozen)  # fmt: skip
