"""The LongformerSelfAttention of transformers on a ragged batch, with the first tokens global."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from longwave import mixers
from longwave.mixer import valid
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("longformer", 12, n_heads=3, window=5, n_global=2, bias=True).double()
    about = LongformerConfig(
        hidden_size=12, num_attention_heads=3, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    theirs = LongformerSelfAttention(about, 0).double().eval()
    for p in ours.parameters():
        torch.nn.init.normal_(p, std=0.5)
    ours.out.weight.data.copy_(torch.eye(12))  # they have no product after it
    ours.out.bias.data.zero_()
    for name in ("weight", "bias"):
        q, k, v = getattr(ours.qkv, name).data.chunk(3)
        k_all, v_all = getattr(ours.kv_global, name).data.chunk(2)
        q_all = getattr(ours.q_global, name).data
        copied = dict(query=q, key=k, value=v, query_global=q_all, key_global=k_all, value_global=v_all)
        for layer, value in copied.items():
            getattr(getattr(theirs, layer), name).data.copy_(value)

    x, lengths = torch.randn(3, 24, 12, dtype=torch.float64, requires_grad=True), torch.tensor([24, 11, 3])
    real = valid(x, lengths)
    first = torch.arange(24).expand(3, -1) < 2
    y = zero_pads(ours(x, None, lengths)[0], lengths)
    mask = torch.where(first, 1e4, torch.where(real, 0.0, -1e4)).double()
    (wanted,) = theirs(
        x.masked_fill(~real[..., None], 0), mask, ~real, first, True
    )  # their length must be a multiple of the window
    wanted = zero_pads(wanted, lengths)
    # their softmax is in float32
    yield "output", y.float(), wanted.float()
    weight = torch.randn_like(y)
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.qkv.weight, ours.q_global.weight, ours.kv_global.weight])
    right = [theirs.query, theirs.key, theirs.value, theirs.query_global, theirs.key_global, theirs.value_global]
    right = torch.autograd.grad((wanted * weight).sum(), [x, *(each.weight for each in right)])
    names, right = (
        ("x", "qkv", "q_global", "kv_global"),
        [right[0], torch.cat(right[1:4]), right[4], torch.cat(right[5:])],
    )
    for name, a, b in zip(names, mine, right, strict=True):
        yield f"gradient of {name}", a.float(), b.float()
