"""BigBird (Zaheer et al. 2020). Its random blocks are no weights: they are drawn here, alike each time.

transformers' draws them anew in training and takes the first block for all of them in use: the two are alike for texts
of at most 5 + 2 n_random blocks, which are seen whole.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from longwave.models.presets import efficient
from longwave.models.sequence_model import SequenceModel
from longwave.models.weights.config import Config
from longwave.models.weights.families import bert
from longwave.models.weights.names import Names, Own
from longwave.spec import Spec

TYPES = {"big_bird": "BigBirdModel"}
PREFIX, OUT, TIED = "bert.", bert.OUT, bert.TIED
BUFFERS = (*bert.BUFFERS, r"^bert\.pooler\.")  # which a model that guesses has, and does not ask
HEADS = {**{kind: name.replace("Bert", "BigBird") for kind, name in bert.HEADS.items()}}


def spec(config: Config) -> Spec:
    config.must("hidden_act", "gelu_new", "gelu_pytorch_tanh")
    config.must("attention_type", "block_sparse")
    config.must("use_bias", True)
    config.must("rescale_embeddings", False)
    config.must("position_embedding_type", "absolute")
    config.ignore("sep_token_id")
    made = efficient.bigbird(n_heads=config.size("num_attention_heads"), block=config.size("block_size", 64),
                             n_random=config.size("num_random_blocks", 3),
                             **bert.common(config, pooler="pooler", pooled=False))  # fmt: skip
    return bert.normed(made, config)


def config(model: SequenceModel) -> dict[str, Any]:
    mixer = model.backbone.parts()[1].parts()[0].mixer
    return dict(architectures=[HEADS[model.spec.options["head"].name]], hidden_act="gelu_new",
                num_attention_heads=mixer.n_heads, block_size=mixer.block, num_random_blocks=mixer.draws.shape[1],
                attention_probs_dropout_prob=mixer.dropout, **bert.sizes(model))  # fmt: skip


def names(model: SequenceModel) -> Names:
    found = {**bert.body(model, PREFIX), **bert.top(model, PREFIX, pooled=False)}
    pooler = {"pooled": "head.dense.linear", "pretrain": "head.dense_pair.linear"}.get(model.spec.options["head"].name)
    for kind in ("weight", "bias"):
        if pooler:
            found[f"{pooler}.{kind}"] = f"{PREFIX}pooler.{kind}"
    for i in range(1, len(model.backbone.parts())):
        shape = tuple(model.backbone.parts()[i].parts()[0].mixer.draws.shape)
        found[f"backbone.{i}.0.mixer.draws"] = Own(functools.partial(_drawn, shape, i))
    return found


def _drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randint(1 << 31, shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
