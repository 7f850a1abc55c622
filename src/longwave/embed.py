"""Texts as vectors: what a model makes of their tokens, as one vector a text; alike texts lie close.

    embed(load("minilm"), ["a cat", "a kitten"])       [2, 384], each of length 1

How the vectors of tokens become one, and how many tokens are read, is said by the files of sentence-transformers beside
the weights, where there are some; else it is the mean of all, brought to length 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from longwave.data.tokens import Tokens, tokens_of
from longwave.errors import UserError
from longwave.mixers.positions import Positions
from longwave.models.heads import Pool, Pooling
from longwave.models.language_model import LanguageModel
from longwave.models.model import Model
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config, read_config

POOLS: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "first", "lasttoken": "last"}  # their names: ours


@dataclass(frozen=True)
class Reading:
    """How a model turns texts into vectors."""

    pool: Pooling = "mean"
    unit: bool = True  # vectors are brought to length 1
    most: int | None = None  # tokens of a text
    lower: bool = False  # texts in lower case


def embed(
    model: Model, texts: Sequence[str], *, pool: Literal["mean", "first", "last"] | None = None,
    unit: bool | None = None, batch: int = 32,
) -> Float[Tensor, "N D"]:  # fmt: skip
    """A vector a text; `pool` and `unit` (whether it has length 1) differ from what the model says only if given."""
    if not isinstance(model, SequenceModel | LanguageModel) or not isinstance(model.embed, nn.Embedding):
        raise UserError(f"a {type(model).__name__} does not read texts: a model of tokens does")
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise UserError("embed takes a list of texts")
    reading, tokens = reading_of(model), tokens_of(model.home)
    if tokens.size > model.embed.num_embeddings:
        raise UserError(f"the tokenizer has {tokens.size} tokens, the model {model.embed.num_embeddings}")
    pooled = Pool(model.embed.embedding_dim, pool=pool or reading.pool)
    rows = [_row(tokens, text.lower() if reading.lower else text, reading.most) for text in texts]
    found = torch.zeros(len(rows), model.embed.embedding_dim)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows), batch):
            some = order[start : start + batch]
            found[some] = _vectors(model, pooled, [rows[i] for i in some])
    model.train(was_training)
    return F.normalize(found, dim=-1) if (reading.unit if unit is None else unit) else found


def _row(tokens: Tokens, text: str, most: int | None) -> list[int]:
    row = tokens.prompt(text, most)
    if not row:
        raise UserError("a text without a single token has no vector")
    return row


def _vectors(model: SequenceModel | LanguageModel, pool: Pool, rows: list[list[int]]) -> Tensor:
    lengths = torch.tensor([len(row) for row in rows])
    padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    device = next(model.parameters()).device
    h, _ = model.hidden(padded.to(device), None, lengths.to(device))
    return pool(h, None, lengths.to(device))[0].float().cpu()


def reading_of(model: Model) -> Reading:
    """What the files beside the weights say; the table of positions says how many tokens there may be."""
    tables = [part.table for part in model.modules() if isinstance(part, Positions) and part.table is not None]
    most = min((len(table) for table in tables), default=None)
    home = model.home
    if home is None or not (home / "modules.json").is_file():
        return Reading(most=most)
    pool: Pooling = "mean"
    unit = False
    for kind, folder in modules(home):
        if kind == "Pooling":
            pool = _pooling(home / folder / "config.json")
        elif kind == "Normalize":
            unit = True
        elif kind != "Transformer":
            raise UserError(f"{home / 'modules.json'}: longwave has Transformer, Pooling and Normalize, not {kind!r}")
    if not (home / "sentence_bert_config.json").is_file():
        return Reading(pool, unit, most)
    said = read_config(home / "sentence_bert_config.json")
    config = Config(said, str(home / "sentence_bert_config.json"))
    longest = config.size_or_none("max_seq_length")
    known = [each for each in (most, longest) if each is not None]
    return Reading(pool, unit, min(known, default=None), config.flag("do_lower_case", False))


def modules(home: Path) -> list[tuple[str, str]]:
    """The parts of a model of sentence-transformers, each with its folder below `home`."""
    import json

    file = home / "modules.json"
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))
        found = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in listed]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError, KeyError, TypeError) as problem:
        raise UserError(f"{file} is damaged: it does not list the parts of a model") from problem
    for _, folder in found:
        if folder and Path(folder).name != folder:
            raise UserError(f"{file} names the folder {folder!r}, which does not lie beside it")
    return found


def _pooling(file: Path) -> Pooling:
    said: dict[str, Any] = read_config(file)
    chosen = [key.removeprefix("pooling_mode_") for key, value in said.items()
              if key.startswith("pooling_mode_") and value is True]  # fmt: skip
    if isinstance(said.get("pooling_mode"), str):
        chosen = [{"mean": "mean_tokens", "cls": "cls_token"}.get(said["pooling_mode"], said["pooling_mode"])]
    if len(chosen) != 1 or chosen[0] not in POOLS:
        raise UserError(f"{file}: longwave pools by one of {', '.join(POOLS)}, this asks for {chosen or 'nothing'}")
    return POOLS[chosen[0]]
