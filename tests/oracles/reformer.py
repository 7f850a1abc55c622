"""Kitaev et al. 2020, section 2, a token at a time with a list for every bucket; where all tokens fall into one bucket
and chunk, transformers' layer, which then attends in full."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from longwave import mixers
from longwave.ops.ragged import zero_pads
from oracles import gradients


def seen(u: Tensor, rotations: Tensor, ours) -> list[list[int]]:
    """Which tokens each token of one head looks up, itself left out."""
    finds, chunk = [set(range(t)) if t < ours.dense else set() for t in range(len(u))], ours.chunk
    for r in range(rotations.shape[1]):
        lists: dict[tuple[int, ...], list[int]] = {}
        for t, ut in enumerate(u):
            turned = (ut @ rotations[:, r]).split([n // 2 for n in ours.buckets])
            bucket = tuple(int(torch.cat([each, -each]).argmax()) for each in turned if len(each))
            mine = lists.setdefault(bucket, [])
            rank = len(mine)
            finds[t] |= set(mine[max(0, (rank // chunk - 1) * chunk) : rank])
            mine.append(t)
    return [sorted(each) for each in finds]


def row(x: Tensor, ours) -> Tensor:
    U, V = ((x @ w.T).chunk(ours.n_heads, -1) for w in ours.uv.weight.chunk(2))
    heads = []
    for u, v, rotations in zip(U, V, ours.rotations, strict=True):
        k = u / (u.square().sum(-1, keepdim=True) + 1e-6 * u.shape[1]).sqrt()
        ys = []
        for t, others in enumerate(seen(u.detach(), rotations, ours)):
            ys.append((u[t] @ k[others].T).softmax(-1) @ v[others] if others else v[t])
        heads.append(torch.stack(ys))
    return torch.cat(heads, -1) @ ours.out.weight.T


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, 24, 8, dtype=torch.float64, requires_grad=True), torch.tensor([24, 11, 1])
    for rounds, chunk, more in ((1, 3, {}), (3, 2, {}), (2, 32, {}), (2, 3, dict(dense=9, n_buckets=(2, 4), d_key=3))):
        options = dict(n_heads=2, n_buckets=4, rounds=rounds, chunk=chunk) | more
        ours = mixers.create("reformer", 8, **options).double()
        y = zero_pads(ours(x, None, lengths)[0], lengths)
        wanted = torch.stack([F.pad(row(x[b, :n], ours), (0, 0, 0, 24 - n)) for b, n in enumerate(lengths.tolist())])
        which = f"{rounds} rounds, chunks of {chunk}{', the first see all' * bool(more)}"
        yield f"output, {which}", y, wanted
        w = ours.uv.weight
        yield from gradients(y, wanted, {f"x, {which}": (x, x), f"the projection, {which}": (w, w)})

    for causal in (True, False):
        ours = mixers.create("reformer", 8, n_heads=2, n_buckets=1, chunk=24, causal=causal).double()
        config = ReformerConfig(
            hidden_size=8, num_attention_heads=2, attention_head_size=4, lsh_attn_chunk_length=24, is_decoder=causal,
            lsh_attention_probs_dropout_prob=0.0, attn_layers=["lsh"], axial_pos_embds=False,
        )  # fmt: skip
        theirs = LSHSelfAttention(config).double().eval()
        theirs.query_key.weight, theirs.value.weight = (nn.Parameter(w) for w in ours.uv.weight.detach().chunk(2))
        mask = torch.arange(24) < lengths[:, None]
        wanted = theirs(x, attention_mask=mask.long()).hidden_states @ ours.out.weight.T
        y, wanted = zero_pads(ours(x, None, lengths)[0], lengths), zero_pads(wanted, lengths)
        yield f"output, one bucket, causal={causal}", y, wanted
        weight = torch.randn_like(y)
        mine = torch.autograd.grad((y * weight).sum(), [x, ours.uv.weight])
        right = torch.autograd.grad((wanted * weight).sum(), [x, theirs.query_key.weight, theirs.value.weight])
        yield f"gradient of x, one bucket, causal={causal}", mine[0], right[0]
        yield f"gradient of the projection, one bucket, causal={causal}", mine[1], torch.cat(right[1:])
