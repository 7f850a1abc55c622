"""transformers' Qwen3NextGatedDeltaNet, with our weights, on a ragged batch; in float32, which it computes in."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from longwave import mixers
from longwave.ops.ragged import zero_pads

H, K, V = 2, 6, 12


def by_head(*each: Tensor) -> Tensor:
    """Theirs has the rows of all projections of a head together."""
    return torch.cat([t.unflatten(0, (H, -1)) for t in each], 1).flatten(0, 1)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("gated_deltanet", 16, n_heads=H)
    config = Qwen3NextConfig(
        hidden_size=16, linear_num_value_heads=H, linear_num_key_heads=H, linear_key_head_dim=K,
        linear_value_head_dim=V, linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6,
        layer_types=["linear_attention"], num_hidden_layers=1,
    )  # fmt: skip
    theirs = Qwen3NextGatedDeltaNet(config, 0)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        theirs.in_proj_qkvz.weight.copy_(by_head(*ours.qkvz.weight.split([H * K, H * K, H * V, H * V])))
        theirs.in_proj_ba.weight.copy_(by_head(*reversed(ours.decay_rate.weight.chunk(2))))
        theirs.conv1d.weight.copy_(ours.conv[:, None])
        for mine, other in (("log_A", "A_log"), ("dt", "dt_bias")):
            getattr(theirs, other).copy_(getattr(ours, mine))
        theirs.norm.weight.copy_(ours.norm.weight)
        theirs.out_proj.weight.copy_(ours.out.weight)
    x, lengths = torch.randn(3, 70, 16, requires_grad=True), torch.tensor([70, 33, 1])
    real = (torch.arange(70) < lengths[:, None]).float()
    weight = torch.randn(3, 70, 16)

    y = zero_pads(ours(x, None, lengths)[0], lengths)
    wanted = zero_pads(theirs(x, attention_mask=real), lengths)
    yield "output", y, wanted
    inputs = [x, ours.qkvz.weight, ours.decay_rate.weight, ours.conv, ours.log_A, ours.dt, ours.norm.weight]
    mine = torch.autograd.grad((y * weight).sum(), [*inputs, ours.out.weight])
    dx, dqkvz, dba, dconv, *same = torch.autograd.grad(
        (wanted * weight).sum(),
        [x, theirs.in_proj_qkvz.weight, theirs.in_proj_ba.weight, theirs.conv1d.weight, theirs.A_log,
         theirs.dt_bias, theirs.norm.weight, theirs.out_proj.weight],
    )  # fmt: skip
    yield "gradient of x", mine[0], dx
    yield "gradient of qkvz", by_head(*mine[1].split([H * K, H * K, H * V, H * V])), dqkvz
    yield "gradient of decay_rate", by_head(*reversed(mine[2].chunk(2))), dba
    yield "gradient of conv", mine[3], dconv[:, 0]
    for name, a, b in zip(("log_A", "dt", "norm", "out"), mine[4:], same, strict=True):
        yield f"gradient of {name}", a, b
