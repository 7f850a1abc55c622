"""transformers' Mamba2Mixer with our weights, in float32 (it keeps A there), on a ragged batch of whole prompts."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from longwave import mixers
from longwave.mixer import valid
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for n_heads, n_groups in ((4, 2), (3, 1)):
        ours = mixers.create("mamba2", 6, d_state=5, n_heads=n_heads, n_groups=n_groups)
        config = Mamba2Config(
            hidden_size=6, state_size=5, num_heads=n_heads, head_dim=12 // n_heads, n_groups=n_groups,
            num_hidden_layers=1, chunk_size=8,
        )  # fmt: skip
        theirs = Mamba2Mixer(config, 0).eval()
        with torch.no_grad():
            ours.gain.normal_()
            theirs.conv1d.weight.copy_(ours.conv[:, None])
        theirs.in_proj.weight, theirs.out_proj.weight = ours.project.weight, ours.out.weight
        theirs.conv1d.bias, theirs.dt_bias, theirs.A_log = ours.conv_bias, ours.dt_bias, ours.log_A
        theirs.D, theirs.norm.weight = ours.D, ours.gain
        x, lengths = torch.randn(3, 11, 6, requires_grad=True), torch.tensor([11, 4, 1])
        weight = zero_pads(torch.randn(3, 11, 6), lengths)

        y, _ = ours(x, ours.init_state(3), lengths)
        wanted = theirs(x, attention_mask=valid(x, lengths).float())
        yield f"output, {n_heads} heads", zero_pads(y, lengths), zero_pads(wanted, lengths)
        shared = {"x": x, **{k: p for k, p in ours.named_parameters() if k != "conv"}}
        mine = torch.autograd.grad((y * weight).sum(), [*shared.values(), ours.conv])
        *right, conv = torch.autograd.grad((wanted * weight).sum(), [*shared.values(), theirs.conv1d.weight])
        for name, a, b in zip([*shared, "conv"], mine, [*right, conv[:, 0]], strict=True):
            yield f"gradient of {name}, {n_heads} heads", a, b
