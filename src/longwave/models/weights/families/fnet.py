"""FNet (Lee-Thorp et al. 2021). transformers' mixes pads in: compare rows without any."""

from typing import Any

from longwave.models.presets import efficient
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config
from longwave.models.weights.families import bert
from longwave.models.weights.names import Names, Through
from longwave.spec import Spec

TYPES = {"fnet": "FNetModel"}
PREFIX, OUT = "fnet.", bert.OUT
TIED, BUFFERS = bert.TIED, (*bert.BUFFERS, r"\.dft_mat_(seq|hidden)$", r"pooler\.dense\.")  # which a guess does not ask
HEADS = {"masked": "FNetForMaskedLM", "pretrain": "FNetForPreTraining", "classify": "FNetForSequenceClassification",
         "pooled": "FNetModel"}  # fmt: skip
ABOVE = 2  # positions, then a map


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu_new", "gelu_pytorch_tanh")
    config.ignore("use_tpu_fourier_optimizations", "tpu_short_seq_length")  # how it is computed, not what
    return bert.normed(efficient.fnet(**bert.common(config)), config)


def config(model: SequenceModel) -> dict[str, Any]:
    return dict(architectures=[HEADS[model.spec.options["head"].name]], hidden_act="gelu_new",
                **bert.sizes(model, above=ABOVE))  # fmt: skip


def names(model: SequenceModel) -> Names:
    project = Through(f"{PREFIX}embeddings.projection.weight", lambda t: t[..., None], lambda t: t[..., 0])
    own = {"backbone.1.0.mixer.conv.weight": project,
           "backbone.1.0.mixer.conv.bias": f"{PREFIX}embeddings.projection.bias"}  # fmt: skip
    return {**bert.body(model, PREFIX, above=ABOVE, mixing="fourier.output"), **bert.top(model, PREFIX), **own}
