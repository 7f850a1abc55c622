"""The equations of Bahdanau et al. 2015 in a plain loop, a row, a step and a source token at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads


def loop(layer, x: Tensor, memory: Tensor, lengths: list[int], sources: list[int]) -> tuple[Tensor, Tensor]:
    """Rows of y, zero behind each row's end, and the last s."""
    cell = nn.GRUCell(x.shape[2] + memory.shape[2], x.shape[2]).double()  # torch's own
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    d = x.shape[2]
    cell.weight_ih, cell.weight_hh = torch.cat([layer.W.weight, layer.C], 1), layer.U
    cell.bias_ih, cell.bias_hh = layer.W.bias, torch.cat([torch.zeros(2 * d, dtype=x.dtype), layer.b_n])
    ys, lasts = [], []
    for row, (T, S) in enumerate(zip(lengths, sources, strict=True)):
        h = memory[row, :S]
        s = torch.tanh(layer.first.weight @ (h.sum(0) / max(S, 1)) + layer.first.bias)
        out = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        for t in range(T):
            c = torch.zeros(memory.shape[2], dtype=x.dtype)
            if S:
                e = [layer.score @ torch.tanh(layer.query @ s + layer.key.weight @ each + layer.key.bias) for each in h]
                c = torch.softmax(torch.stack(e), 0) @ h
            s = cell(torch.cat([x[row, t], c])[None], s[None])[0]
            out[t] = layer.out.weight @ torch.cat([s, c])
        ys.append(torch.stack(out))
        lasts.append(s)
    return torch.stack(ys), torch.stack(lasts)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    layer = mixers.create("additive", 5, d_memory=4, d_score=6).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.5)
    x, memory = (torch.randn(3, n, w, dtype=torch.float64, requires_grad=True) for n, w in ((7, 5), (6, 4)))
    lengths, sources = [7, 1, 4], [6, 0, 3]
    y, state = layer(x, layer.init_state(3, memory, torch.tensor(sources)), torch.tensor(lengths))
    y = zero_pads(y, torch.tensor(lengths))
    wanted, last = loop(layer, x, memory, lengths, sources)
    yield "output", y, wanted
    yield "s", state.s, last
    weight, named = torch.randn_like(y), dict(x=x, memory=memory, **dict(layer.named_parameters()))
    mine, right = (torch.autograd.grad((out * weight).sum(), list(named.values())) for out in (y, wanted))
    for name, a, b in zip(named, mine, right, strict=True):
        yield f"gradient of {name}", a, b
