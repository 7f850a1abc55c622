"""BERT (Devlin et al. 2019), and the sentence encoders that are one (MiniLM, Wang et al. 2020)."""

from typing import Any

from longwave.models.presets import encoders
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config
from longwave.models.weights.names import Joined, Names
from longwave.spec import Spec

TYPES = {"bert": "BertModel"}
PREFIX, OUT = "bert.", "cls.predictions.decoder.weight"
TIED = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
BUFFERS = (r"embeddings\.position_ids$",)
ORIGINAL = {r"\.gamma$": ".weight", r"\.beta$": ".bias"}
HEADS = {"masked": "BertForMaskedLM", "pretrain": "BertForPreTraining", "classify": "BertForSequenceClassification",
         "tag": "BertForTokenClassification", "pooled": "BertModel", "none": "BertModel"}  # fmt: skip


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu")
    config.must("position_embedding_type", "absolute")
    made = encoders.bert(n_heads=config.size("num_attention_heads"), **common(config))
    return normed(made, config)


def common(
    config: Config, guess: str = "cls.predictions.transform", pooler: str = "pooler.dense", unread: int = 0,
    pooled: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """What the presets of encoders ask for.

    `unread`: first rows of the table of positions; `pooled`: a class is that of the pooler's answer.
    """
    config.must("is_decoder", False)
    config.must("add_cross_attention", False)
    config.must("tie_word_embeddings", True)
    config.must("chunk_size_feed_forward", 0)
    config.ignore("attention_probs_dropout_prob", "classifier_dropout")
    of_tokens, of_all = config.shape("classifier.weight"), config.shape("classifier.out_proj.weight")
    labels, below = of_tokens or of_all, config.shape(f"{pooler}.weight")
    kind: encoders.Kind = "pooled" if below else "none"
    if labels:
        kind = "classify" if of_all or (below and pooled) else "tag"
    if config.shape(f"{guess}.weight") or config.shape(f"{guess}.dense.weight"):
        kind = "pretrain" if config.shape("cls.seq_relationship.weight") else "masked"
    return dict(
        d_model=config.size("hidden_size"), n_layers=config.layers("num_hidden_layers"),
        d_hidden=config.size("intermediate_size"), vocab=config.size("vocab_size"),
        context=max(1, config.size("max_position_embeddings") - unread), types=config.size("type_vocab_size", 2),
        n_classes=labels[0] if labels else 2, dropout=config.number("hidden_dropout_prob", 0.1), head=kind,
    )  # fmt: skip


def normed(made: Spec, config: Config) -> Spec:
    """With the epsilon that the config gives."""
    norm, head = Spec("layer", eps=config.number("layer_norm_eps", 1e-12)), made.options["head"]
    return made.but(norm=norm, head=head.but(norm=norm) if head.name in ("masked", "pretrain") else head)


def config(model: SequenceModel) -> dict[str, Any]:
    attention, _ = (branch.mixer for branch in model.backbone.parts()[1].parts())
    return dict(architectures=[HEADS[model.spec.options["head"].name]], num_attention_heads=attention.n_heads,
                hidden_act="gelu", attention_probs_dropout_prob=attention.dropout, **sizes(model))  # fmt: skip


def sizes(model: SequenceModel, above: int = 1, unread: int = 0) -> dict[str, Any]:
    """What the config of any of them says; the layers begin after `above` parts."""
    positions, *layers = model.backbone.parts()
    _, ffn = (branch.mixer for branch in layers[-1].parts())
    return dict(
        hidden_size=model.embed.embedding_dim, vocab_size=model.embed.num_embeddings,
        num_hidden_layers=1 + len(layers) - above, intermediate_size=ffn.out.in_features,
        max_position_embeddings=len(positions.parts()[0].mixer.table) + unread,
        type_vocab_size=model.spec.options["types"], layer_norm_eps=positions.parts()[0].norm.eps,
        hidden_dropout_prob=model.dropout.p, **labels(model),
    )  # fmt: skip


def labels(model: SequenceModel) -> dict[str, Any]:
    """How transformers is told the number of classes."""
    head = model.spec.options["head"]
    names = [f"LABEL_{i}" for i in range(head.options.get("n_classes", 0))]
    if not names:
        return {}
    return dict(id2label={str(i): name for i, name in enumerate(names)}, label2id={n: i for i, n in enumerate(names)})


def names(model: SequenceModel) -> Names:
    return {**body(model, PREFIX), **top(model, PREFIX)}


def body(model: SequenceModel, prefix: str, above: int = 1, mixing: str = "attention.output") -> dict[str, Any]:
    """All but the head; others name it alike, and may have more parts above their layers."""
    at = f"{prefix}embeddings"
    found: dict[str, Any] = {"embed.weight": f"{at}.word_embeddings.weight",
                             "types.weight": f"{at}.token_type_embeddings.weight",
                             "backbone.0.0.mixer.table": f"{at}.position_embeddings.weight"}  # fmt: skip
    for kind in ("weight", "bias"):
        found[f"backbone.0.0.norm.{kind}"] = f"{at}.LayerNorm.{kind}"
        for i in range(len(model.backbone.parts()) - above):
            ours, theirs = f"backbone.{i + above}", f"{prefix}encoder.layer.{i}"
            parts = tuple(f"{theirs}.attention.self.{each}.{kind}" for each in ("query", "key", "value"))
            found[f"{ours}.0.mixer.qkv.{kind}"] = Joined(parts)
            for mine, name in {"0.mixer.out": "attention.output.dense", "0.norm": f"{mixing}.LayerNorm",
                               "1.mixer.project": "intermediate.dense", "1.mixer.out": "output.dense",
                               "1.norm": "output.LayerNorm"}.items():  # fmt: skip
                found[f"{ours}.{mine}.{kind}"] = f"{theirs}.{name}.{kind}"
    return found


def top(model: SequenceModel, prefix: str, pooled: bool = True) -> dict[str, Any]:
    """The head; others name it alike, or have a dense layer of their own under a class."""
    kind = model.spec.options["head"].name
    own = kind == "classify" and not pooled
    dense = "classifier.dense" if own else f"{prefix}pooler.dense"
    if kind in ("masked", "pretrain"):
        dense = "cls.predictions.transform.dense"
    found = {"head.bias": "cls.predictions.bias"}
    for kind in ("weight", "bias"):
        for mine, name in {"dense.linear": dense, "dense.norm": "cls.predictions.transform.LayerNorm",
                           "dense_pair.linear": f"{prefix}pooler.dense", "pair": "cls.seq_relationship",
                           "out": "classifier.out_proj" if own else "classifier"}.items():  # fmt: skip
            found[f"head.{mine}.{kind}"] = f"{name}.{kind}"
    return found
