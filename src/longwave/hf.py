"""Our architectures as classes of transformers. Importing this registers them:

    import longwave.hf
    model = AutoModelForCausalLM.from_pretrained("out")     # what `longwave export RUN out --to hf` wrote
    model.generate(**AutoTokenizer.from_pretrained("out")("a prompt", return_tensors="pt"))

The cache is our State. Rows may be padded on the left or the right: they are rolled to the right at the door, and what
comes back stands where transformers expects it.
"""

from typing import Any

import torch
from torch import Tensor

from longwave import models
from longwave.errors import UserError
from longwave.models.language_model import LanguageModel
from longwave.models.weights.own import architecture
from longwave.ops.linear import linear
from longwave.ops.loss import IGNORE
from longwave.ops.ragged import real_first
from longwave.record import aux_losses
from longwave.spec import Spec
from longwave.state import State

try:
    import transformers
    from transformers import modeling_outputs as outputs
    from transformers.utils.generic import can_return_tuple
except ImportError as missing:
    raise UserError("longwave.hf needs: pip install 'longwave[hf]'") from missing


class LongwaveConfig(transformers.PretrainedConfig):
    model_type = "longwave"
    spec: dict | None = None

    def __init__(self, spec: dict | None = None, **kwargs: Any) -> None:
        self.spec = spec
        options = {} if spec is None else spec["options"]
        self.vocab_size, self.hidden_size = options.get("vocab") or 256, options.get("d_model")
        head = options.get("head")
        if head:
            kwargs.setdefault("num_labels", head["options"]["n_classes"])
        kwargs["tie_word_embeddings"] = False  # a tied model of ours has one matrix, not two that are the same
        super().__init__(**kwargs)


class StateCache:
    """A State where transformers expects a cache."""

    is_compileable = False

    def __init__(self, state: State) -> None:
        self.state, self.length = state, 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.state = self.state.rows(beam_idx)


class Rows:
    """A padded batch rolled to the right, and the way back."""

    def __init__(self, tokens: Tensor, mask: Tensor | None) -> None:
        self.tokens, self.lengths, self.places = tokens, None, None
        self.mask = None if mask is None else mask[:, -tokens.shape[1] :].bool()
        if self.mask is not None and not self.mask.all():
            order = real_first(self.mask)
            self.tokens, self.lengths = tokens.gather(1, order), self.mask.sum(1)
            self.places = order.argsort(1)

    def back(self, y: Tensor) -> Tensor:
        """y[B, T, ...] with every token where it came from."""
        if self.places is None:
            return y
        return y.gather(1, self.places.view(*self.places.shape, *[1] * (y.ndim - 2)).expand_as(y))


class _Longwave(transformers.PreTrainedModel):
    config_class = LongwaveConfig
    base_model_prefix = "longwave"
    main_input_name = "input_ids"
    _is_stateful = True  # no state can be cropped: assisted decoding is refused

    def __init__(self, config: LongwaveConfig) -> None:
        super().__init__(config)
        if config.spec is None:
            raise UserError("this config.json holds no spec: longwave export RUN OUT --to hf writes one")
        self.model = models.create(Spec.from_json(config.spec))
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Our models initialise themselves when they are built."""

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embed

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        self.model.embed = value

    def get_output_embeddings(self) -> torch.nn.Module | None:
        return getattr(self.model, "unembed", None)

    def _read(
        self, input_ids: Tensor | None, mask: Tensor | None, cache: StateCache | None, use_cache: bool | None
    ) -> tuple[Tensor, Any, Rows]:
        """Hidden states where their tokens stand, and the cache after them."""
        if input_ids is None:
            raise UserError("a longwave model reads input_ids, not inputs_embeds")
        rows, model = Rows(input_ids, mask), self.model
        if use_cache and cache is None and model.causal:
            cache = StateCache(model.init_state(len(input_ids)))
        if cache is None:
            return rows.back(model.hidden(rows.tokens, None, rows.lengths)[0]), None, rows
        h, cache.state = model.hidden(rows.tokens, cache.state, rows.lengths)
        cache.length += input_ids.shape[1]
        return rows.back(h), cache, rows


class LongwaveModel(_Longwave):
    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
        past_key_values: Any = None, use_cache: bool | None = None, **ignored: Any,
    ) -> outputs.BaseModelOutputWithPast:  # fmt: skip
        h, cache, _ = self._read(input_ids, attention_mask, past_key_values, use_cache)
        return outputs.BaseModelOutputWithPast(last_hidden_state=h, past_key_values=cache)


class LongwaveForCausalLM(_Longwave, transformers.GenerationMixin):
    model: LanguageModel

    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
        past_key_values: Any = None, labels: Tensor | None = None, use_cache: bool | None = None,
        logits_to_keep: int = 0, num_items_in_batch: Any = None, **ignored: Any,
    ) -> outputs.CausalLMOutputWithPast:  # fmt: skip
        with aux_losses() as terms:
            h, cache, rows = self._read(input_ids, attention_mask, past_key_values, use_cache)
            logits = linear(h[:, -logits_to_keep:] if logits_to_keep else h, self.model.out)
        loss = None
        if labels is not None:
            if rows.mask is not None:  # a pad predicts nothing, and is not predicted
                seen = rows.mask & torch.nn.functional.pad(rows.mask[:, :-1], (1, 0), value=True)
                labels = labels.masked_fill(~seen, IGNORE)
            loss = self.loss_function(logits, labels, len(self.model.out), num_items_in_batch=num_items_in_batch)
            count = (labels != IGNORE).sum().clamp_min(1) if num_items_in_batch is None else num_items_in_batch
            loss = loss + sum((term.total for term in terms), start=torch.zeros_like(loss)) / count
        return outputs.CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def _prepare_cache_for_generation(self, *_: Any) -> bool:
        """Nothing to prepare: forward makes the state."""
        return False


class LongwaveForMaskedLM(_Longwave):
    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, labels: Tensor | None = None,
        **ignored: Any,
    ) -> outputs.TokenClassifierOutput:  # fmt: skip
        h, _, _ = self._read(input_ids, attention_mask, None, False)
        logits = self.model.head(h, **self.model.embedded())[0]
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
        return outputs.TokenClassifierOutput(loss=loss, logits=logits)


class LongwaveForTokenClassification(LongwaveForMaskedLM):
    pass


class LongwaveForSequenceClassification(_Longwave):
    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, labels: Tensor | None = None,
        **ignored: Any,
    ) -> outputs.SequenceClassifierOutput:  # fmt: skip
        assert input_ids is not None
        rows = Rows(input_ids, attention_mask)
        loss = None if labels is None else self.model.loss(rows.tokens, labels, rows.lengths)
        return outputs.SequenceClassifierOutput(loss=loss, logits=self.model(rows.tokens, None, rows.lengths)[0])


transformers.AutoConfig.register("longwave", LongwaveConfig)
transformers.AutoModel.register(LongwaveConfig, LongwaveModel)
transformers.AutoModelForCausalLM.register(LongwaveConfig, LongwaveForCausalLM)
transformers.AutoModelForMaskedLM.register(LongwaveConfig, LongwaveForMaskedLM)
transformers.AutoModelForTokenClassification.register(LongwaveConfig, LongwaveForTokenClassification)
transformers.AutoModelForSequenceClassification.register(LongwaveConfig, LongwaveForSequenceClassification)


def open_folder(folder: Any) -> transformers.PreTrainedModel:
    """The model in a folder, by the class that its config names."""
    config = LongwaveConfig.from_pretrained(folder)
    return globals()[architecture(Spec.from_json(config.spec))].from_pretrained(folder)
