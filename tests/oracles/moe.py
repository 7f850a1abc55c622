"""The Mixtral and DeepSeek-V3 blocks of transformers, with our weights, a row at a time where rows are ragged."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DeepseekV3Config, MixtralConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("moe", 6, n_experts=5, top_k=2, d_hidden=7).double()
    theirs = MixtralSparseMoeBlock(
        MixtralConfig(hidden_size=6, intermediate_size=7, num_local_experts=5, num_experts_per_tok=2)
    ).double()
    yield from compared("Mixtral", ours, theirs)

    ours = mixers.create(
        "moe", 6, n_experts=8, top_k=3, d_hidden=7, gate="sigmoid", n_groups=4, top_groups=2, n_shared=2, scale=2.5
    ).double()
    ours.bias.normal_(std=0.2)
    about = DeepseekV3Config(
        hidden_size=6, moe_intermediate_size=7, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=2, routed_scaling_factor=2.5, norm_topk_prob=True,
    )  # fmt: skip
    theirs = DeepseekV3MoE(about).double()
    theirs.gate.e_score_correction_bias.copy_(ours.bias)
    gate, up = ours.shared.project.weight.chunk(2)
    with torch.no_grad():
        theirs.shared_experts.gate_proj.weight.copy_(gate)
        theirs.shared_experts.up_proj.weight.copy_(up)
        theirs.shared_experts.down_proj.weight.copy_(ours.shared.out.weight)
    yield from compared("DeepSeek-V3", ours, theirs)


def compared(which: str, ours, theirs) -> Iterator[tuple[str, Tensor, Tensor]]:
    theirs.gate.weight = ours.router
    theirs.experts.gate_up_proj, theirs.experts.down_proj = ours.W_in, ours.W_out
    x, lengths = torch.randn(3, 11, 6, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 1])
    y, _ = ours(x, None, lengths)
    y = zero_pads(y, lengths)
    rows = [theirs(x[b : b + 1, :n])[0] for b, n in enumerate(lengths.tolist())]
    wanted = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    # their router works in float32
    yield f"output, {which}", y.float(), wanted.float()
    weight, inputs = torch.randn_like(y), [x, ours.router, ours.W_in, ours.W_out]
    mine, right = (torch.autograd.grad((out * weight).sum(), inputs) for out in (y, wanted))
    for name, a, b in zip(("x", "router", "W_in", "W_out"), mine, right, strict=True):
        yield f"gradient of {name}, {which}", a.float(), b.float()
