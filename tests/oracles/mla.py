"""The DeepSeek-V3 attention of transformers: a whole sequence (expanded), and its last tokens in steps (absorbed)."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from longwave import mixers


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for d_query in (None, 7):
        yield from compared(d_query)


def compared(d_query: int | None) -> Iterator[tuple[str, Tensor, Tensor]]:
    sizes = dict(n_heads=3, d_latent=10, d_key=6, d_rope=4, d_value=5)
    ours = mixers.create("mla", 12, **sizes, d_query=d_query).double()
    about = DeepseekV3Config(
        hidden_size=12, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=d_query, kv_lora_rank=10,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, rope_interleave=False, max_position_embeddings=64,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), attn_implementation="eager",
    )  # fmt: skip
    theirs = DeepseekV3Attention(about, 0).double()
    for p in ours.parameters():
        torch.nn.init.normal_(p, std=0.5)
    if d_query is None:
        theirs.q_proj.weight = ours.q[0].weight
    else:
        theirs.q_a_proj.weight, theirs.q_a_layernorm.weight = ours.q[0].weight, ours.q[1].weight
        theirs.q_b_proj.weight = ours.q[2].weight
    theirs.kv_a_proj_with_mqa.weight, theirs.kv_a_layernorm.weight = ours.kv_down.weight, ours.norm.weight
    theirs.kv_b_proj.weight, theirs.o_proj.weight = ours.kv_up.weight, ours.out.weight

    x = torch.randn(2, 17, 12, dtype=torch.float64, requires_grad=True)
    angles = DeepseekV3RotaryEmbedding(about)(x, torch.arange(17)[None])
    later = torch.full((17, 17), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    wanted = theirs(x, angles, later)[0]
    y, _ = ours(x)
    # their norms, angles and weights are cast to float32 on the way, ours are not
    yield f"output, d_query={d_query}", y.float(), wanted.float()
    weight, inputs = torch.randn_like(y), [x, *ours.parameters()]
    mine, right = (torch.autograd.grad((out * weight).sum(), inputs) for out in (y, wanted))
    for i, (a, b) in enumerate(zip(mine, right, strict=True)):
        yield f"gradient {i}, d_query={d_query}", a.float(), b.float()
    _, state = ours(x[:, :12], ours.init_state(2))
    for t in range(12, 17):
        y, state = ours(x[:, t : t + 1], state)
        yield f"output of step {t}, d_query={d_query}", y.float(), wanted[:, t : t + 1].float()
