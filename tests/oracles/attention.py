"""torch.nn.MultiheadAttention on ragged batches, both ways and causal; T5Attention of transformers for its bias."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from longwave import mixers
from longwave.mixer import valid
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    yield from against_torch(causal=True)
    yield from against_torch(causal=False)
    yield from against_t5(causal=True)
    yield from against_t5(causal=False)


def against_torch(causal: bool) -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("attention", 12, n_heads=3, position="none", bias=True, causal=causal).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        for p in ours.parameters():
            p.normal_()
    theirs.in_proj_weight, theirs.in_proj_bias = ours.qkv.weight, ours.qkv.bias
    theirs.out_proj.weight, theirs.out_proj.bias = ours.out.weight, ours.out.bias
    x, lengths = torch.randn(3, 11, 12, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    y, _ = ours(x, None, lengths)
    later = torch.ones(11, 11, dtype=torch.bool).triu(1) if causal else None
    wanted, _ = theirs(x, x, x, key_padding_mask=~valid(x, lengths), attn_mask=later, need_weights=False)
    inputs = [x, *ours.parameters()]
    yield from compared(f"causal={causal}", zero_pads(y, lengths), zero_pads(wanted, lengths), inputs, inputs)


def against_t5(causal: bool) -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create(
        "attention", 12, n_heads=3, d_key=5, score="dot", position="t5", causal=causal, temperature=2.0
    ).double()
    about = T5Config(d_model=12, d_kv=5, num_heads=3, is_decoder=causal, dropout_rate=0.0)
    theirs = T5Attention(about, has_relative_attention_bias=True, layer_idx=0).double()
    with torch.no_grad():
        ours.table.normal_()
        q, k, v = ours.qkv.weight.split(15)
        theirs.q.weight.copy_(q / 2)  # T5 knows no temperature
        theirs.k.weight.copy_(k)
        theirs.v.weight.copy_(v)
        theirs.o.weight.copy_(ours.out.weight)
        theirs.relative_attention_bias.weight.copy_(ours.table.T / 2)
        ours.table.mul_(0.5)
    x = torch.randn(1, 150, 12, dtype=torch.float64, requires_grad=True)  # beyond the distance of the last bucket
    y, _ = ours(x)
    later = torch.full((150, 150), -torch.inf, dtype=torch.float64).triu(1)[None, None] if causal else None
    wanted = theirs(x, mask=later)[0]
    mine, right = [x, ours.table, ours.out.weight], [x, theirs.relative_attention_bias.weight, theirs.o.weight]
    for what, a, b in compared(f"buckets, causal={causal}", y, wanted, mine, right):
        yield what, a, b.T if "gradient 1" in what else b


def compared(
    which: str, y: Tensor, wanted: Tensor, mine: list[Tensor], right: list[Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    yield f"output, {which}", y, wanted
    weight = torch.randn_like(y)
    grads = [torch.autograd.grad((out * weight).sum(), of) for out, of in ((y, mine), (wanted, right))]
    for i, (a, b) in enumerate(zip(*grads, strict=True)):
        yield f"gradient {i}, {which}", a, b
