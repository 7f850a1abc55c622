"""transformers' MambaMixer with our weights, in float32 (it keeps A there), on a ragged batch of whole prompts.

A longer piece on a warm cache restarts its state at zero, so it is right about whole prompts alone.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer

from longwave import mixers
from longwave.mixer import valid
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("mamba", 6, d_state=4)
    theirs = MambaMixer(MambaConfig(hidden_size=6, state_size=4, time_step_rank=1, num_hidden_layers=1), 0).eval()
    with torch.no_grad():
        theirs.conv1d.weight.copy_(ours.conv[:, None])
    theirs.in_proj.weight, theirs.out_proj.weight = ours.project.weight, ours.out.weight
    theirs.conv1d.bias, theirs.x_proj.weight = ours.conv_bias, ours.select.weight
    theirs.dt_proj.weight, theirs.dt_proj.bias = ours.dt.weight, ours.dt.bias
    theirs.A_log, theirs.D = ours.log_A, ours.D
    x, lengths = torch.randn(3, 11, 6, requires_grad=True), torch.tensor([11, 4, 1])
    weight = zero_pads(torch.randn(3, 11, 6), lengths)

    y, _ = ours(x, ours.init_state(3), lengths)
    wanted = theirs(x, attention_mask=valid(x, lengths).float())
    yield "output", zero_pads(y, lengths), zero_pads(wanted, lengths)
    shared = {"x": x, **{k: p for k, p in ours.named_parameters() if k != "conv"}}
    mine = torch.autograd.grad((y * weight).sum(), [*shared.values(), ours.conv])
    *right, conv = torch.autograd.grad((wanted * weight).sum(), [*shared.values(), theirs.conv1d.weight])
    for name, a, b in zip([*shared, "conv"], mine, [*right, conv[:, 0]], strict=True):
        yield f"gradient of {name}", a, b
