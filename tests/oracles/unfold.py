"""Column by column, in two pieces, over a padded memory."""

from collections.abc import Iterator

import torch
from torch import Tensor

from longwave import mixers


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    ours = mixers.create("unfold", 4, d_memory=3).double()
    memory, lengths = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True), torch.tensor([5, 1, 3])
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    state = ours.init_state(3, memory, lengths)
    first, state = ours(x[:, :2], state)
    rest, _ = ours(x[:, 2:], state)
    y = torch.cat([first, rest], 1)
    wanted = torch.stack([
        torch.stack([ours.out.weight @ memory[b, t] if t < n else torch.zeros(4).double() for t in range(7)])
        for b, n in enumerate(lengths.tolist())
    ])  # fmt: skip
    yield "output", y, wanted
    weight = torch.randn_like(y)
    for name, a, b in zip(("the memory", "the product"), *(
        torch.autograd.grad((each * weight).sum(), [memory, ours.out.weight], retain_graph=True) for each in (y, wanted)
    ), strict=True):  # fmt: skip
        yield f"gradient of {name}", a, b
