"""torch.nn.MultiheadAttention on ragged batches, both ways and causal; of transformers T5Attention for its bias,
LlamaAttention for rotary positions and grouped heads, GPT-Neo's for a window and unscaled scores.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import GPTNeoConfig, LlamaConfig, T5Config
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from longwave import mixers
from longwave.mixer import valid
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    yield from against_torch(causal=True)
    yield from against_torch(causal=False)
    yield from against_t5(causal=True)
    yield from against_t5(causal=False)
    yield from against_llama()
    yield from against_gpt_neo()


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


def against_llama() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("attention", 16, n_heads=4, n_kv_heads=2, rope_base=500.0).double()
    about = LlamaConfig(
        hidden_size=16, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        rope_parameters=dict(rope_type="default", rope_theta=500.0), attn_implementation="eager",
    )  # fmt: skip
    theirs = LlamaAttention(about, 0).double().eval()
    q, k, v = ours.qkv.weight.detach().split([16, 8, 8])
    theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight = (nn.Parameter(w) for w in (q, k, v))
    theirs.o_proj.weight = ours.out.weight
    x = torch.randn(2, 13, 16, dtype=torch.float64, requires_grad=True)
    later = torch.full((13, 13), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    wanted = theirs(x, LlamaRotaryEmbedding(about)(x, torch.arange(13)[None]), later)[0]
    for what, a, b in compared("rotary, grouped heads", ours(x)[0], wanted, [x], [x]):
        yield what, a.float(), b.float()  # their angles and weights are in float32


def against_gpt_neo() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("attention", 12, n_heads=3, score="dot", position="none", window=4).double()
    about = GPTNeoConfig(
        hidden_size=12, num_heads=3, num_layers=1, attention_types=[[["local"], 1]], window_size=4,
        max_position_embeddings=32, attention_dropout=0.0, resid_dropout=0.0,
    )  # fmt: skip
    theirs = GPTNeoSelfAttention(about, "local", 0).double().eval()
    q, k, v = ours.qkv.weight.detach().chunk(3)
    theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight = (nn.Parameter(w) for w in (q, k, v))
    theirs.out_proj.weight = ours.out.weight
    theirs.out_proj.bias.data.zero_()
    x = torch.randn(2, 13, 12, dtype=torch.float64, requires_grad=True)
    for what, a, b in compared("a window, unscaled", ours(x)[0], theirs(x)[0], [x], [x]):
        yield what, a.float(), b.float()  # their scores are in float32


def compared(
    which: str, y: Tensor, wanted: Tensor, mine: list[Tensor], right: list[Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    yield f"output, {which}", y, wanted
    weight = torch.randn_like(y)
    grads = [torch.autograd.grad((out * weight).sum(), of) for out, of in ((y, mine), (wanted, right))]
    for i, (a, b) in enumerate(zip(*grads, strict=True)):
        yield f"gradient {i}, {which}", a, b
