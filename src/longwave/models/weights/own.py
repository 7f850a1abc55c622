"""A folder of transformers' for a model of ours that is of no published family: our names, and its spec in config.json.

It opens in transformers once `longwave.hf` is imported, and in longwave itself.
"""

from typing import Any

from longwave.errors import UserError
from longwave.models.model import Model
from longwave.models.weights.config import Config
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"longwave": "LongwaveModel"}
PREFIX, OUT = "model.", "model.unembed.weight"


def architecture(spec: Spec) -> str:
    """The class of `longwave.hf` that a model of this spec is."""
    if spec.name == "language_model":
        return "LongwaveForCausalLM"
    head, vocab = spec.options.get("head"), spec.options.get("vocab")
    if spec.name != "sequence_model" or vocab is None or not isinstance(head, Spec):
        raise UserError(f"a {spec.name} has no class in transformers: it has models of tokens")
    if head.name == "masked":
        return "LongwaveForMaskedLM"
    if head.name in ("none", "pooled", "pretrain"):
        raise UserError(f"the head {head.name!r} has no class in transformers: classify, tag and masked have")
    if head.name == "tag":
        return "LongwaveForMaskedLM" if head.options["n_classes"] == vocab else "LongwaveForTokenClassification"
    return "LongwaveForSequenceClassification"


def spec(config: Config) -> Spec:
    config.ignore("hidden_size", "vocab_size", "num_labels", "id2label", "label2id", "tie_word_embeddings")
    config.ignore(*(key for key in config.values if key not in ("spec", "model_type")))  # transformers adds its own
    return Spec.from_json(config.take("spec"))


def config(model: Model) -> dict[str, Any]:
    kind = architecture(model.spec)
    return dict(model_type="longwave", spec=model.spec.to_json(), architectures=[kind], dtype="float32")


def names(model: Model) -> Names:
    return {name: PREFIX + name for name in model.state_dict()}
