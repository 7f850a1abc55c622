"""torch.nn.MultiheadAttention over a padded memory."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("cross", 8, n_heads=2, d_memory=6, bias=True).double()
    theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True).double()
    with torch.no_grad():
        for p in ours.parameters():
            p.normal_()
    theirs.q_proj_weight, theirs.in_proj_bias = ours.q.weight, nn.Parameter(torch.cat([ours.q.bias, ours.kv.bias]))
    theirs.k_proj_weight, theirs.v_proj_weight = (nn.Parameter(w) for w in ours.kv.weight.chunk(2))
    theirs.out_proj.weight, theirs.out_proj.bias = ours.out.weight, ours.out.bias
    x = torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    memory, lengths = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True), torch.tensor([5, 1, 3])

    y, _ = ours(x, ours.init_state(3, memory, lengths))
    wanted, _ = theirs(x, memory, memory, key_padding_mask=torch.arange(5) >= lengths[:, None], need_weights=False)
    yield "output", y, wanted
    weight = torch.randn_like(y)
    mine = torch.autograd.grad((y * weight).sum(), [x, memory, ours.q.weight, ours.kv.weight, ours.kv.bias])
    to = [x, memory, theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight, theirs.in_proj_bias]
    right = torch.autograd.grad((wanted * weight).sum(), to)
    right = [*right[:3], torch.cat(right[3:5]), right[5][8:]]
    for name, a, b in zip(("x", "the memory", "q", "kv", "the biases"), mine, right, strict=True):
        yield f"gradient of {name}", a, b
