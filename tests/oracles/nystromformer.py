"""transformers' Nystromformer layer, its iteration started exactly, each ragged row alone with its own landmarks."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import NystromformerConfig
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

from longwave import mixers
from longwave.ops.ragged import zero_pads


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 12, 8, dtype=torch.float64, requires_grad=True), torch.tensor([12, 8, 4])
    ours = mixers.create("nystromformer", 8, n_heads=2, landmarks=2, taps=5).double()
    config = NystromformerConfig(
        hidden_size=8, num_attention_heads=2, num_landmarks=2, conv_kernel_size=5, attention_probs_dropout_prob=0.0
    )
    theirs = NystromformerSelfAttention(config).double()
    theirs.init_option = "exact"
    for layer, weight in zip((theirs.query, theirs.key, theirs.value), ours.qkv.weight.chunk(3), strict=True):
        layer.weight = nn.Parameter(weight.detach().clone())
        nn.init.zeros_(layer.bias)
    theirs.conv.weight = nn.Parameter(ours.beside.detach()[:, None, :, None].clone())
    rows = []
    for b, n in enumerate(lengths.tolist()):
        theirs.seq_len = n
        rows.append(F.pad(theirs(x[b : b + 1, :n])[0][0] @ ours.out.weight.T, (0, 0, 0, 12 - n)))
    y, wanted = zero_pads(ours(x, None, lengths)[0], lengths), torch.stack(rows)
    yield "output", y, wanted
    weight, projections = torch.randn_like(y), (theirs.query, theirs.key, theirs.value)
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.out.weight, ours.beside, ours.qkv.weight])
    to = [x, ours.out.weight, theirs.conv.weight, *(each.weight for each in projections)]
    right = torch.autograd.grad((wanted * weight).sum(), to)
    yield "gradient of x", mine[0], right[0]
    yield "gradient of out", mine[1], right[1]
    yield "gradient of the convolution", mine[2], right[2][:, 0, :, 0]
    yield "gradient of the projections", mine[3], torch.cat(right[3:])
