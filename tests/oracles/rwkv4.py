"""transformers' RwkvSelfAttention with our weights, in float32, which it computes in: padding on the right, of which no
causal output knows (it ignores masks), and one state carried over three pieces."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers.models.rwkv.configuration_rwkv import RwkvConfig
from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward, RwkvSelfAttention

from longwave import mixers
from longwave.ops.ragged import zero_pads

D, T = 8, 30


def compared(ours, theirs, names: dict[str, str]) -> Iterator[tuple[str, Tensor, Tensor]]:
    x, lengths = torch.randn(3, T, D, requires_grad=True), torch.tensor([T, 11, 1])
    weight = torch.randn(3, T, D)
    y = zero_pads(ours(x, None, lengths)[0], lengths)
    wanted = zero_pads(theirs(x)[0], lengths)
    yield "output", y, wanted
    given, right = dict(ours.named_parameters()), dict(theirs.named_parameters())
    mine = torch.autograd.grad((y * weight).sum(), [x, ours.mu, *(given[name] for name in names)])
    mixes = [theirs.time_mix_key, *([theirs.time_mix_value] if "v.weight" in names else []), theirs.time_mix_receptance]
    dx, *same = torch.autograd.grad((wanted * weight).sum(), [x, *mixes, *(right[name] for name in names.values())])
    same = [dx, torch.cat(same[: len(mixes)])[:, 0], *same[len(mixes) :]]
    for name, a, b in zip(("x", "mu", *names), mine, same, strict=True):
        yield f"gradient of {name}", a, b


def copied(ours, theirs: nn.Module, names: dict[str, str]) -> None:
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        right = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            if name != "mu":
                right[names[name]].copy_(parameter)
        for mine, part in zip(ours.mu, ("key", "value", "receptance") if len(ours.mu) == 3 else ("key", "receptance"),
                              strict=True):  # fmt: skip
            right[f"time_mix_{part}"].copy_(mine[None, None])


def feed_forward() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("channel_mix", D)
    theirs = RwkvFeedForward(RwkvConfig(hidden_size=D, num_hidden_layers=1))
    names = {"k.weight": "key.weight", "r.weight": "receptance.weight", "out.weight": "value.weight"}
    copied(ours, theirs, names)
    yield from compared(ours, theirs, names)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("rwkv4", D)
    theirs = RwkvSelfAttention(RwkvConfig(hidden_size=D, num_hidden_layers=1))
    names = {"decay": "time_decay", "bonus": "time_first", "k.weight": "key.weight", "v.weight": "value.weight",
             "r.weight": "receptance.weight", "out.weight": "output.weight"}  # fmt: skip
    copied(ours, theirs, names)
    yield from compared(ours, theirs, names)

    x = torch.randn(2, T, D)
    carried = [torch.zeros(2, D, 1) for _ in range(4)] + [torch.full((2, D, 1), -1e38)]
    state = ours.init_state(2)
    with torch.no_grad():
        for piece in (x[:, :7], x[:, 7:9], x[:, 9:]):  # one token it mixes across the rows of a batch
            y, state = ours(piece, state)
            wanted, carried = theirs(piece, state=carried, use_cache=True)
            yield f"output of {piece.shape[1]} tokens", y, wanted
    yield "last", state.last, carried[1][:, :, 0]
    for name, part in zip("ABm", carried[2:], strict=True):
        yield name, getattr(state, name), part[:, :, 0]
