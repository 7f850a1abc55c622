"""Encoders that read from both sides, as published: what they guess, classify or embed is the head's choice."""

from typing import Any, Literal

from longwave.models.presets._layers import Mixers, both_ways, in_turn, layers, on_features
from longwave.spec import Spec

Kind = Literal["masked", "pretrain", "classify", "tag", "pooled", "none"]
ELMO = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # widths of filters, of 2048 how many
BERT_NORM = Spec("layer", eps=1e-12)


def bert(
    *,
    d_model: int = 768,  # width
    n_layers: int = 12,  # layers
    n_heads: int = 12,  # attention heads
    d_hidden: int | None = None,  # width of the feed-forward network; None: 4 d_model
    vocab: int = 30522,  # tokens
    context: int = 512,  # positions that are learned
    types: int = 2,  # kinds of tokens: of the first sentence, of the second
    mixer: Mixers = "attention",  # any other; one that reads forwards is made to read both ways
    head: Kind = "masked",  # pretrain: hidden tokens and pairs of sentences; classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings, branches and attention, in training
) -> Spec:
    """BERT-base: post-norm, learned positions, a guess at hidden tokens; or with other mixers."""
    width = d_hidden or 4 * d_model
    attention = Spec("attention", n_heads=n_heads, causal=False, position="none", bias=True, dropout=dropout)
    ffn = Spec("ffn", kind="gelu", d_hidden=width, bias=True)
    turns = [attention if each == "attention" else both_ways(each) for each in in_turn(mixer)]
    blocks = [[turns[i % len(turns)], ffn] for i in range(n_layers)]
    return Spec("sequence_model", d_model=d_model, vocab=vocab, types=types, dropout=dropout, norm=BERT_NORM,
                residual="post", init_std=0.02, head=_head(head, vocab, n_classes, dict(norm=BERT_NORM), {}),
                blocks=[Spec("positions", kind="learned", longest=context), *blocks])  # fmt: skip


def bert_large(
    *,
    d_model: int = 1024,  # width
    n_layers: int = 24,  # layers
    n_heads: int = 16,  # attention heads
    vocab: int = 30522,  # tokens
    context: int = 512,  # positions that are learned
    head: Kind = "masked",  # pretrain: hidden tokens and pairs of sentences; classify, tag; pooled, none: vectors
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.1,  # of embeddings, branches and attention, in training
) -> Spec:
    """BERT-large: the same, wider and deeper."""
    return bert(d_model=d_model, n_layers=n_layers, n_heads=n_heads, vocab=vocab, context=context, head=head,
                n_classes=n_classes, dropout=dropout)  # fmt: skip


def modernbert(
    *,
    d_model: int = 768,  # width
    n_layers: int = 22,  # layers
    n_heads: int = 12,  # attention heads
    d_hidden: int = 1152,  # width of the gated feed-forward network
    vocab: int = 50368,  # tokens
    window: int = 128,  # of local layers: half of it to each side
    every: int = 3,  # the first layer and then every so many see the whole sequence
    rope_base: float = 160000.0,  # the base of rotary positions where the whole sequence is seen
    rope_base_local: float = 10000.0,  # and in local layers
    head: Literal["masked", "classify", "tag", "none"] = "masked",  # none: the hidden states
    n_classes: int = 2,  # of classify and tag
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """ModernBERT-base: pre-norm, rotary positions, local layers between global ones, gated networks, no biases."""
    everywhere = Spec("attention", n_heads=n_heads, causal=False, rope_base=rope_base)
    near = everywhere.but(window=window // 2 + 1, rope_base=rope_base_local)
    ffn = Spec("ffn", kind="geglu", d_hidden=d_hidden)
    blocks = [[near if i % every else everywhere, ffn] for i in range(n_layers)]
    blocks[0] = [Spec("branch", mixer=everywhere, norm="none"), ffn]  # the embeddings are normed already
    layer = dict(norm="gain", bias=False)
    return Spec("sequence_model", d_model=d_model, vocab=vocab, norm="gain", embed_norm=True, dropout=dropout,
                init_std=0.02, head=_head(head, vocab, n_classes, layer, {"act": "gelu", **layer}),
                blocks=blocks)  # fmt: skip


def hierarchy(
    *,
    mixer: Mixers = "attention",  # of both levels; one that reads forwards is made to read both ways
    d_model: int = 128,  # width
    n_lower: int = 2,  # layers that read a sentence
    n_upper: int = 2,  # layers that read the vectors of a document's sentences
    vocab: int = 256,  # tokens
    piece: int = 128,  # tokens that a flat document is cut into
    head: Literal["classify", "tag", "regress", "predict"] = "classify",  # a document's, or each sentence's
    n_classes: int = 2,  # what there is to choose from, or numbers
    dropout: float = 0.0,  # of embeddings and branches, in training
) -> Spec:
    """Sentences, then documents: encoders of any mixer one above the other."""
    positions = Spec("branch", mixer=Spec("positions"), norm="none")
    reads = [Spec("attention", causal=False, position="none") if each == "attention" else both_ways(each)
             for each in in_turn(mixer)]  # fmt: skip
    lower, upper = ([positions, *layers(tuple(reads), n, "gelu")] for n in (n_lower, n_upper))
    return Spec("hierarchical", d_model=d_model, vocab=vocab, piece=piece, dropout=dropout, lower=lower, upper=upper,
                head=Spec(head, n_classes=n_classes))  # fmt: skip


def elmo(
    *,
    words: bool = True,  # the input is characters of words, [B, T, W]; False: tokens
    vocab: int = 793471,  # words that are guessed, or the tokens
    guesses: bool = True,  # False: features alone, without the output matrix
    d_model: int = 512,  # width of each direction
    d_cell: int = 4096,  # and of its LSTMs' cells
    n_layers: int = 2,  # layers of each direction
    filters: int = 2048,  # over the characters of a word, of widths 1 to 7
    dropout: float = 0.1,  # of embeddings and layers, in training
) -> Spec:
    """ELMo: words from their characters, then a language model of projected LSTMs in either direction."""
    bare = Spec("branch", mixer=Spec("lstmp", d_cell=d_cell), residual="none")  # the first is not beside a residual
    blocks = [bare, *[Spec("lstmp", d_cell=d_cell)] * (n_layers - 1)]
    widths = [[width, max(1, filters * share // 2048)] for width, share in ELMO] if words else []
    return Spec("bilm", d_model=d_model, vocab=vocab, guesses=guesses, filters=widths, dropout=dropout, blocks=blocks)


def elmo_classifier(
    *,
    n_classes: int = 2,  # what there is to choose from, or numbers
    head: Literal["classify", "regress"] = "classify",  # a class a sequence, or numbers
    words: bool = True,  # the input is characters of words, [B, T, W]; False: tokens
    vocab: int = 256,  # tokens, where these are the input
    d_elmo: int = 512,  # width of each direction of the language model below
    d_cell: int = 4096,  # and of its LSTMs' cells
    filters: int = 2048,  # over the characters of a word
    d_model: int = 1500,  # width of the LSTMs above, which read its features both ways
    n_layers: int = 2,  # of these
    dropout: float = 0.2,  # of layers, in training
) -> Spec:
    """BiLSTM + ELMo + attention: features of the language model, mixed by learned weights, LSTMs, attentive pooling."""
    below = elmo(words=words, vocab=vocab, guesses=False, d_model=d_elmo, d_cell=d_cell, filters=filters)
    top = Spec(head, n_classes=n_classes, pool="attention", dropout=dropout)
    return on_features(below, top, d_model=d_model, n_layers=n_layers, dropout=dropout)


def _head(kind: str, vocab: int, n_classes: int, layer: dict[str, Any], pooler: dict[str, Any]) -> Spec:
    """`layer` is the dense layer under guesses, `pooler` the one under a class."""
    match kind:
        case "masked" | "pretrain":
            return Spec(kind, vocab=vocab, **layer)
        case "classify":
            return Spec(kind, n_classes=n_classes, pool="first", dense=True, **pooler)
        case "pooled":
            return Spec(kind, pool="first", dense=True, **pooler)
        case "tag":
            return Spec(kind, n_classes=n_classes)
    return Spec(kind)
