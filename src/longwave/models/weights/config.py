"""A published model's config.json, read strictly: what nobody has read is an error, as is a value we cannot obey."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longwave.errors import UserError
from longwave.spec import Spec

REQUIRED = object()
MOST = 2**31  # larger sizes are no sizes
MOST_LAYERS = 10_000
IGNORED = {  # says nothing about what the model computes
    "_name_or_path", "architectures", "attention_dropout", "attn_pdrop", "auto_map", "bos_token_id",
    "classifier_dropout", "dtype", "embd_pdrop", "embed_dropout", "eos_token_id", "gradient_checkpointing", "head_dim",
    "id2label", "initializer_range", "label2id", "max_position_embeddings", "model_type", "n_ctx", "n_special",
    "output_past",
    "output_router_logits", "pad_token_id", "predict_special_tokens", "pretraining_tp", "problem_type",
    "resid_dropout", "resid_pdrop", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "task_specific_params", "tokenizer_class", "torch_dtype",
    "transformers.js_config", "transformers_version", "use_cache",
}  # fmt: skip


class Config:
    def __init__(
        self, values: Mapping[str, Any], where: str, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.values, self.where, self.seen = dict(values), where, set(IGNORED)
        self.shapes = dict(shapes or {})  # of the tensors that lie beside it, which tell what head a model has

    def shape(self, ending: str) -> tuple[int, ...] | None:
        """That of the tensor whose name ends so; None: there is none."""
        return next((shape for name, shape in self.shapes.items() if name.endswith(ending)), None)

    def take(self, key: str, default: Any = REQUIRED) -> Any:
        self.seen.add(key)
        value = self.values.get(key, default)
        if value is REQUIRED:
            raise UserError(f"{self.where} does not say {key!r}")
        return value

    def size(self, key: str, default: Any = REQUIRED, most: int = MOST) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise UserError(f"{self.where}: {key!r} must be a number from 1 to {most}, got {str(value)[:40]}")
        return value

    def size_or_none(self, key: str) -> int | None:
        return None if self.take(key, None) is None else self.size(key)

    def layers(self, key: str) -> int:
        return self.size(key, most=MOST_LAYERS)

    def number(self, key: str, default: Any = REQUIRED) -> float:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"{self.where}: {key!r} must be a number, got {str(value)[:40]}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{self.where}: {key!r} must be true or false, got {str(value)[:40]}")
        return value

    def must(self, key: str, *values: Any) -> None:
        """The key may be absent; else it has one of these values, the only ones that our model knows."""
        value = self.take(key, values[0])
        if value not in values:
            known = " or ".join(json.dumps(v) for v in values)
            raise UserError(f"{self.where}: {key!r} is {json.dumps(value)[:60]}, longwave has {known}")

    def ignore(self, *keys: str) -> None:
        self.seen.update(keys)

    def done(self) -> None:
        unknown = sorted(key for key, value in self.values.items() if key not in self.seen and value is not None)
        if unknown:
            raise UserError(f"{self.where}: unknown key {unknown[0]!r}: what it asks of the model is not known")

    def rotary(self) -> tuple[float, Spec | None, float]:
        """The base, the scaling, and the temperature of scores that DeepSeek's YaRN comes with."""
        theirs = self.take("rope_parameters", None)
        old = self.take("rope_scaling", None)
        given = theirs or old or {}
        if not isinstance(given, dict):
            raise UserError(f"{self.where}: 'rope_parameters' must be a group of values, got {str(given)[:40]}")
        rope = Config(given, f"{self.where}, rope parameters")
        base = rope.number("rope_theta", self.take("rope_theta", 10000.0))
        rope.must("partial_rotary_factor", 1.0)
        scaling, temperature = _scaling(rope)
        rope.done()
        return base, scaling, temperature


def _scaling(rope: Config) -> tuple[Spec | None, float]:
    rope.must("type", *dict.fromkeys([rope.values.get("type", "default"), "default"]))
    kind = rope.take("rope_type", rope.values.get("type", "default"))
    if kind == "default":
        return None, 1.0
    if kind == "linear":
        return Spec("linear", factor=rope.number("factor")), 1.0
    if kind == "llama3":
        return Spec("llama3", factor=rope.number("factor"), trained=rope.size("original_max_position_embeddings"),
                    low=rope.number("low_freq_factor"), high=rope.number("high_freq_factor")), 1.0  # fmt: skip
    if kind == "yarn":
        factor, gain = rope.number("factor"), rope.take("attention_factor", None)
        one, all_ = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
        rope.must("truncate", True)
        if gain is None:
            gain = sharper(factor, one) / sharper(factor, all_) if one and all_ else sharper(factor)
        spec = Spec("yarn", factor=factor, trained=rope.size("original_max_position_embeddings"), gain=gain,
                    fast=rope.number("beta_fast", 32.0), slow=rope.number("beta_slow", 1.0))  # fmt: skip
        return spec, sharper(factor, all_) ** -2 if all_ else 1.0
    raise UserError(f"{rope.where}: the scaling {kind!r} is not among linear, llama3 and yarn")


def sharper(factor: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


def rope_parameters(base: float, scaling: Spec | None, temperature: float = 1.0) -> dict[str, Any]:
    """The same, as transformers writes it."""
    if scaling is None:
        return dict(rope_type="default", rope_theta=base)
    theirs = dict(trained="original_max_position_embeddings", low="low_freq_factor", high="high_freq_factor",
                  fast="beta_fast", slow="beta_slow", gain="attention_factor", factor="factor")  # fmt: skip
    options = {theirs[name]: value for name, value in scaling.options.items() if value is not None}
    if temperature != 1.0:
        options["mscale_all_dim"] = (temperature**-0.5 - 1) / (0.1 * math.log(scaling.options["factor"]))
    return dict(rope_type=scaling.name, rope_theta=base, **options)


def norm(kind: str, eps: float) -> str | Spec:
    return kind if eps == 1e-5 else Spec(kind, eps=eps)


def read_config(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        raise UserError(f"{file} is damaged: it is not JSON") from problem
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged: it is not a group of values")
    return found
