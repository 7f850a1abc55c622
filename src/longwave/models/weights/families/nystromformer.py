"""Nystromformer (Xiong et al. 2021).

transformers' knows one length only, `segment_means_seq_len`, and takes pads and all rows of a batch together: compare a
row of that length. Where the length is that of the landmarks it computes attention itself.
"""

from typing import Any

from torch import Tensor

from longwave.models.presets import efficient
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config
from longwave.models.weights.families import bert
from longwave.models.weights.names import Names, Through, behind
from longwave.spec import Spec

TYPES = {"nystromformer": "NystromformerModel"}
PREFIX, OUT, TIED, BUFFERS = "nystromformer.", bert.OUT, bert.TIED, bert.BUFFERS
HEADS = {"masked": "NystromformerForMaskedLM", "classify": "NystromformerForSequenceClassification",
         "tag": "NystromformerForTokenClassification", "none": "NystromformerModel"}  # fmt: skip
UNREAD = 2  # rows of the table of positions


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu_new", "gelu_pytorch_tanh")
    config.must("inv_coeff_init_option", False)
    landmarks = config.size("num_landmarks", 64)
    exact = landmarks == config.size("segment_means_seq_len", 64)
    taps = config.size_or_none("conv_kernel_size")
    made = efficient.nystromformer(n_heads=config.size("num_attention_heads"), taps=taps,
                                   landmarks=None if exact else landmarks,
                                   **bert.common(config, pooled=False))  # fmt: skip
    return bert.normed(made, config)


def config(model: SequenceModel) -> dict[str, Any]:
    mixer, said = model.backbone.parts()[1].parts()[0].mixer, bert.sizes(model)
    marks = mixer.landmarks or 64
    length = marks if mixer.landmarks is None else max(2 * marks, said["max_position_embeddings"] // marks * marks)
    return dict(architectures=[HEADS[model.spec.options["head"].name]], hidden_act="gelu_new",
                num_attention_heads=mixer.n_heads, num_landmarks=marks, segment_means_seq_len=length,
                conv_kernel_size=None if mixer.beside is None else mixer.beside.shape[1], **said)  # fmt: skip


def names(model: SequenceModel) -> Names:
    found = {**bert.body(model, PREFIX), **bert.top(model, PREFIX, pooled=False)}
    found["backbone.0.0.mixer.table"] = behind(f"{PREFIX}embeddings.position_embeddings.weight", UNREAD)
    for i in range(len(model.backbone.parts()) - 1):
        conv = f"{PREFIX}encoder.layer.{i}.attention.self.conv.weight"
        found[f"backbone.{i + 1}.0.mixer.beside"] = Through(
            conv, lambda t: t[:, 0, :, 0], lambda t: t[:, None, :, None]
        )
    return found


def asks(values: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """A row, of their length where there are landmarks."""
    length = values["segment_means_seq_len"]
    if length != values["num_landmarks"]:
        tokens = tokens[:1].repeat(1, -(-length // tokens.shape[1]))[:, :length]
    return tokens[:1], {}
