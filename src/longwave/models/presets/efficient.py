"""Models of long texts as published: BERT with another mixer than attention over all pairs, and the Reformer."""

from typing import Literal

from longwave.models.presets import encoders
from longwave.models.presets.encoders import Kind
from longwave.spec import Spec


def fnet(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    d_hidden: int = 3072,  # width of the feed-forward network
    vocab: int = 32000,  # tokens
    context: int = 512,  # positions that are learned
    types: int = 4,  # kinds of tokens
    head: Kind = "pretrain",  # pretrain: hidden tokens and pairs of sentences; classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings and branches, in training
) -> Spec:
    """FNet-base (Lee-Thorp et al. 2021): a Fourier transform in place of attention, and a map behind the embeddings."""
    made = encoders.bert(d_model=d_model, n_layers=n_layers, d_hidden=d_hidden, vocab=vocab, context=context,
                         types=types, mixer="fnet", head=head, n_classes=n_classes, dropout=dropout)  # fmt: skip
    project = Spec("branch", mixer=Spec("conv", taps=1, causal=False), norm="none", residual="none")
    made = _with(made, Spec("fnet"))
    positions, *layers = made.options["blocks"]
    return made.but(blocks=[positions, project, *layers])


def nystromformer(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # attention heads
    d_hidden: int = 3072,  # width of the feed-forward network
    landmarks: int | None = 64,  # segments that attention goes through; None: attention itself
    taps: int | None = 65,  # of the convolution beside; None: no convolution
    vocab: int = 30000,  # tokens
    context: int = 510,  # positions that are learned
    types: int = 2,  # kinds of tokens
    head: Kind = "masked",  # classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings and branches, in training
) -> Spec:
    """Nystromformer-512 (Xiong et al. 2021): attention through landmarks, a convolution beside."""
    mixer = Spec("nystromformer", n_heads=n_heads, landmarks=landmarks, taps=taps, start="row", bias=True)
    made = encoders.bert(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_hidden=d_hidden, vocab=vocab,
                         context=context, types=types, head=head, n_classes=n_classes, dropout=dropout)  # fmt: skip
    return _with(made, mixer, pooler="gelu_tanh", eps=1e-5)


def bigbird(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # attention heads
    d_hidden: int = 3072,  # width of the feed-forward network
    block: int = 64,  # tokens a block
    n_random: int = 3,  # random blocks that a block sees
    vocab: int = 50358,  # tokens
    context: int = 4096,  # positions that are learned
    types: int = 2,  # kinds of tokens
    head: Kind = "pretrain",  # pretrain: hidden tokens and pairs of sentences; classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings, branches and attention, in training
) -> Spec:
    """BigBird-base (Zaheer et al. 2020): each block sees its neighbours, the first, the last and some random ones."""
    mixer = Spec("bigbird", n_heads=n_heads, block=block, n_random=n_random, bias=True, dropout=dropout)
    made = encoders.bert(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_hidden=d_hidden, vocab=vocab,
                         context=context, types=types, head=head, n_classes=n_classes, dropout=dropout)  # fmt: skip
    return _with(made, mixer, pooler="gelu_tanh")


def longformer(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # attention heads
    d_hidden: int = 3072,  # width of the feed-forward network
    window: int = 512,  # tokens that a token sees, half of them on each side
    n_global: int = 1,  # this many first tokens see all and are seen by all
    vocab: int = 50265,  # tokens
    context: int = 4096,  # positions that are learned
    types: int = 1,  # kinds of tokens
    head: Kind = "masked",  # classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings, branches and attention, in training
) -> Spec:
    """Longformer-base-4096 (Beltagy et al. 2020): a window, and global tokens with projections of their own."""
    mixer = Spec("longformer", n_heads=n_heads, window=window // 2 + 1, n_global=n_global, bias=True, dropout=dropout)
    made = encoders.bert(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_hidden=d_hidden, vocab=vocab,
                         context=context, types=types, head=head, n_classes=n_classes, dropout=dropout)  # fmt: skip
    return _with(made, mixer, "gelu", eps=1e-5)


def reformer(
    *,
    layers: tuple[Literal["local", "lsh"], ...] = ("local", "lsh"),  # in turn: what is near, what has the same hash
    d_model: int = 256,  # width
    n_layers: int = 6,  # layers
    n_heads: int = 2,  # attention heads
    d_key: int = 64,  # width of a head
    d_hidden: int = 512,  # width of the feed-forward network
    chunk: int = 64,  # tokens that see one another, and those of the chunk before
    n_buckets: int | tuple[int, ...] = (64, 128),  # of a hash, or of several whose buckets are multiplied
    rounds: int = 1,  # hashes, each with a bucket for every token
    context: int = 524288,  # positions that are learned
    columns: int | None = 1024,  # positions are a row and a column, so many a row; None: a table of all
    d_row: int = 64,  # channels of the row
    vocab: int = 320,  # tokens
    causal: bool = True,  # False: an encoder that guesses hidden tokens
    dropout: float = 0.05,  # of embeddings, branches and local attention, in training
) -> Spec:
    """Reformer (Kitaev et al. 2020), sizes of the one trained on Crime and Punishment: reversible layers, local and LSH
    in turn."""
    kinds = {
        "local": Spec("attention", n_heads=n_heads, d_key=d_key, block=chunk, position="none", causal=causal,
                      dropout=dropout),
        "lsh": Spec("reformer", n_heads=n_heads, d_key=d_key, n_buckets=n_buckets, rounds=rounds, chunk=chunk,
                    dense=2 * chunk if rounds == 1 else chunk, causal=causal),
    }  # fmt: skip
    axial = dict(kind="learned") if columns is None else dict(kind="axial", columns=columns, d_row=d_row)
    positions = Spec("branch", mixer=Spec("positions", longest=context, **axial), norm="none", residual="pre")
    ffn = Spec("ffn", kind="relu", d_hidden=d_hidden, bias=True, dropout=dropout)
    common = dict(d_model=d_model, vocab=vocab, norm=Spec("layer", eps=1e-12), residual="reversible_wide",
                  dropout=dropout, init_std=0.02,
                  blocks=[positions, *[[kinds[layers[i % len(layers)]], ffn] for i in range(n_layers)]])  # fmt: skip
    if causal:
        return Spec("language_model", tied=False, **common)
    return Spec("sequence_model", head=Spec("tag", n_classes=vocab, bias=False), **common)


def _with(made: Spec, mixer: Spec, act: str = "gelu_tanh", pooler: str = "tanh", eps: float = 1e-12) -> Spec:
    """A BERT with another mixer: `act` is that of its networks and of the layer under guesses."""
    norm, head = Spec("layer", eps=eps), made.options["head"]
    if head.name in ("masked", "pretrain"):
        head = head.but(act=act, norm=norm)
    elif head.name in ("classify", "pooled"):
        head = head.but(act=pooler if head.name == "classify" else "tanh")
    positions, *layers = made.options["blocks"]
    return made.but(norm=norm, head=head, blocks=[positions, *[[mixer, ffn.but(kind=act)] for _, ffn in layers]])
