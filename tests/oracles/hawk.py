"""transformers' RecurrentGemmaRecurrentBlock with our weights, in float32, its state's dtype; positions from 1,
as it resets where they are 0. Padding on the right, of which no causal output knows (it ignores masks).
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers.models.recurrent_gemma.configuration_recurrent_gemma import RecurrentGemmaConfig
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

from longwave import mixers
from longwave.ops.ragged import zero_pads

D, H, T = 8, 2, 20


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("hawk", D, n_heads=H)
    config = RecurrentGemmaConfig(hidden_size=D, lru_width=D, num_attention_heads=H, conv1d_width=4)
    theirs = RecurrentGemmaRecurrentBlock(config, 0)
    unit = theirs.rg_lru
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        for part, weight, bias in zip((theirs.linear_x, theirs.linear_y), ours.project.weight.chunk(2),
                                      ours.project.bias.chunk(2), strict=True):  # fmt: skip
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        theirs.linear_out.load_state_dict(ours.out.state_dict())
        theirs.conv_1d.weight.copy_(ours.conv[:, None])
        theirs.conv_1d.bias.copy_(ours.conv_bias)
        for i, gate in enumerate(("recurrent", "input")):
            getattr(unit, f"{gate}_gate_weight").copy_(ours.gates[i])
            getattr(unit, f"{gate}_gate_bias").copy_(ours.gates_bias[i].view(H, -1))
        unit.recurrent_param.copy_(ours.p)
    x, lengths = torch.randn(3, T, D, requires_grad=True), torch.tensor([T, 7, 1])
    weight = torch.randn(3, T, D)
    positions = torch.arange(1, T + 1).expand(3, T)
    y = zero_pads(ours(x, None, lengths)[0], lengths)
    wanted = zero_pads(theirs(x, positions, None, use_cache=False)[0], lengths)
    yield "output", y, wanted
    with torch.no_grad():
        whole, state = ours(x, ours.init_state(3))
    yield "output of the whole", whole, theirs(x, positions, None, use_cache=False)[0]
    yield "h", state.h, unit.recurrent_states
    unit.recurrent_states = None
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.gates, ours.gates_bias, ours.p, ours.conv, ours.conv_bias])
    right = torch.autograd.grad(
        (wanted * weight).sum(),
        [x, unit.recurrent_gate_weight, unit.input_gate_weight, unit.recurrent_gate_bias, unit.input_gate_bias,
         unit.recurrent_param, theirs.conv_1d.weight, theirs.conv_1d.bias],
    )  # fmt: skip
    right = [right[0], torch.stack(right[1:3]), torch.stack(right[3:5]).flatten(1), right[5], right[6][:, 0], right[7]]
    for name, a, b in zip(("x", "gates", "gates_bias", "p", "conv", "conv_bias"), mine, right, strict=True):
        yield f"gradient of {name}", a, b
