"""The equations of Bahdanau et al. 2015 in a loop, a row, a step and a source token at a time, over cells of torch."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longwave import mixers
from longwave.ops.ragged import zero_pads


def torchs(layer, d: int, d_memory: int) -> nn.Module:
    """Torch's own cell with our weights."""
    if layer.project is not None:
        return Wide(layer)
    cell = (nn.LSTMCell if layer.b_n is None else nn.GRUCell)(d + d_memory, d).double()
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    cell.weight_ih, cell.weight_hh = torch.cat([layer.W.weight, layer.C], 1), layer.U
    zeros = torch.zeros_like(layer.W.bias)
    cell.bias_ih = layer.W.bias
    cell.bias_hh = zeros if layer.b_n is None else torch.cat([zeros[: 2 * d], layer.b_n])
    return cell


class Wide(nn.Module):
    """One step of torch's LSTM with a projection, as a cell."""

    def __init__(self, layer) -> None:
        super().__init__()
        bias = layer.W.bias
        self.weights = (torch.cat([layer.W.weight, layer.C], 1), layer.U, bias, 0 * bias, layer.project.weight)

    def forward(self, x: Tensor, before: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        first = tuple(each[None] for each in before)
        _, h, c = torch.lstm(x[:, None], first, self.weights, True, 1, 0.0, False, False, True)
        return h[0], c[0]


def loop(layer, x: Tensor, memory: Tensor, lengths: list[int], sources: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of y and of the context, zero behind each row's end, and the last s."""
    d = x.shape[2]
    cell = torchs(layer, d, memory.shape[2])
    ys, contexts, lasts = [], [], []
    for row, (T, S) in enumerate(zip(lengths, sources, strict=True)):
        h = memory[row, :S]
        s = torch.tanh(layer.first.weight @ (h.sum(0) / max(S, 1)) + layer.first.bias)
        out = [torch.zeros(d, dtype=x.dtype)] * x.shape[1]
        found = [torch.zeros(memory.shape[2], dtype=x.dtype)] * x.shape[1]
        for t in range(T):
            c = torch.zeros(memory.shape[2], dtype=x.dtype)
            if S:
                q = layer.query @ s[:d]
                e = [layer.score @ torch.tanh(q + layer.key.weight @ each + layer.key.bias) for each in h]
                c = torch.softmax(torch.stack(e), 0) @ h
            before = s[None] if layer.b_n is not None else (s[None, :d], s[None, d:])
            new = cell(torch.cat([x[row, t], c])[None], before)
            s = new[0] if layer.b_n is not None else torch.cat(new, 1)[0]
            out[t] = s[:d] if layer.out is None else layer.out.weight @ torch.cat([s[:d], c])
            found[t] = c
        ys.append(torch.stack(out))
        contexts.append(torch.stack(found))
        lasts.append(s)
    return torch.stack(ys), torch.stack(contexts), torch.stack(lasts)


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    for how in (dict(), dict(cell="lstm", hand_on=True), dict(cell="lstm", d_cell=7)):
        layer = mixers.create("additive", 5, d_memory=4, d_score=6, **how).double()
        for p in layer.parameters():
            nn.init.normal_(p, std=0.5)
        x, memory = (torch.randn(3, n, w, dtype=torch.float64, requires_grad=True) for n, w in ((7, 5), (6, 4)))
        lengths, sources, handed = torch.tensor([7, 1, 4]), torch.tensor([6, 0, 3]), {}
        y, state = layer(x, layer.init_state(3, memory, sources), lengths, handed=handed)
        y = zero_pads(y, lengths)
        wanted, context, last = loop(layer, x, memory, lengths.tolist(), sources.tolist())
        yield f"output {how}", y, wanted
        yield f"s {how}", state.s, last
        if layer.gives:
            yield "the context handed on", zero_pads(handed["context"], lengths), context
        weight, named = torch.randn_like(y), dict(x=x, memory=memory, **dict(layer.named_parameters()))
        mine, right = (torch.autograd.grad((out * weight).sum(), list(named.values())) for out in (y, wanted))
        for name, a, b in zip(named, mine, right, strict=True):
            yield f"gradient of {name} {how}", a, b
