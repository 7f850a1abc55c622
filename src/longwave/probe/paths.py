"""How long a layer waits for itself, and how far apart it leaves two tokens.

Sequential steps are counted: the longest chain of operations of which each needs the one before, of all of them and of
products of matrices alone. Operations that do not wait for one another (a loop over independent tokens) count once.

The maximum path length is counted, too: over all pairs of tokens, the steps of the shortest way from the one's input to
the other's output, through a stack as deep as it takes to connect all pairs. Who sees whom in a layer is read from its
gradients. A layer whose chain does not grow with the sequence (or as its logarithm) looks straight: each edge is a
step. One that goes through time hands a token from state to state: an edge is a step for every token it spans.

Vaswani et al. 2017, section 4 and Table 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longwave import mixers, ops
from longwave.compare.flops import FORMULAS
from longwave.errors import UserError
from longwave.mixer import Mixer
from longwave.probe.picture import pyplot, save

WIDTH = 8  # of the layers that are looked at
DEEPEST = 256  # layers that a stack may have
NOISE = 1e-12  # of the largest gradient: what a Fourier transform leaves where nothing is

Layer = Callable[[int], Mixer]  # the layer of a stack at a depth


class Chains(TorchDispatchMode):
    """Inside, every tensor knows the longest chain of operations, and of products, that led to it."""

    def __init__(self) -> None:
        super().__init__()
        self.length: dict[int, tuple[int, int]] = {}  # by storage, so that views are as far as what they show
        self.alive: list[Any] = []  # so that no storage is taken for an earlier one

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            given = [self.of(t) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            product = func._overloadpacket in FORMULAS
            longest = [max(chain) for chain in zip(*given, strict=True)] or [0, 0]
            for t in pytree.tree_leaves(out):
                if isinstance(t, Tensor):
                    self.length[t.untyped_storage()._cdata] = (longest[0] + 1, longest[1] + product)
                    self.alive.append(t)
        return out

    def of(self, t: Tensor) -> tuple[int, int]:
        return self.length.get(t.untyped_storage()._cdata, (0, 0))


@dataclass(frozen=True)
class Paths:
    """What was counted of a stack of layers, for sequences of `tokens`."""

    tokens: int
    operations: int  # of a layer, one after another
    products: int  # of these, products of matrices
    sequential: bool  # the chain grows with the sequence, faster than its logarithm
    depth: int  # layers until every pair that may be connected is
    longest: int  # steps between the two tokens that are farthest apart


def chain(layer: Mixer, tokens: int) -> tuple[int, int]:
    """Operations, and products, of which each waits for the one before."""
    x = torch.randn(1, tokens, WIDTH, dtype=torch.float64)  # where torch takes a cell apart into its steps
    with ops.use("torch"), torch.no_grad(), Chains() as chains:
        y, _ = layer(x)
    return chains.of(y)


def sees(layer: Mixer, tokens: int, *, noise: float = NOISE) -> Bool[Tensor, "T T"]:
    """Which outputs (rows) depend on which inputs."""
    x = torch.randn(1, tokens, WIDTH, dtype=torch.float64).repeat(tokens, 1, 1).requires_grad_()
    with ops.use("torch"):
        own = layer(x)[0].diagonal(dim1=0, dim2=1)  # of row t only the output t: one gradient for all
    (gradient,) = torch.autograd.grad((own * torch.randn_like(own)).sum(), x)
    strength = gradient.abs().amax(-1)
    return strength > noise * strength.max()


def count_paths(layer: str | Layer, tokens: int = 64) -> Paths:
    """The chain of a layer, and the longest of the shortest ways through a stack of it; any mixer by its name."""
    make: Layer = (lambda _: mixers.create(layer, WIDTH)) if isinstance(layer, str) else layer
    seed = torch.random.get_rng_state()
    torch.manual_seed(0)
    try:
        return _count(make, tokens)
    finally:
        torch.random.set_rng_state(seed)


def _count(make: Layer, tokens: int) -> Paths:
    def layer(depth: int) -> Mixer:
        return make(depth).double().eval()

    first = layer(0)
    counted, more, most = (chain(first, n)[0] for n in (tokens, 4 * tokens, 16 * tokens))
    sequential = most - more > 1.5 * (more - counted)  # of a logarithm the two differences are the same
    wanted = torch.ones(tokens, tokens, dtype=torch.bool)
    steps = _start(tokens)
    for depth in range(DEEPEST):
        one = layer(depth)
        before = (steps < torch.inf).sum()
        steps = _through(steps, sees(one, tokens, noise=0.0 if sequential else NOISE), sequential)
        far = steps[wanted.tril() if one.causal else wanted].max()
        if far < torch.inf:
            return Paths(tokens, *chain(first, tokens), sequential, depth + 1, int(far))
        if (steps < torch.inf).sum() == before:
            break
    raise UserError(f"{type(first).__name__}: {depth + 1} layers do not connect {tokens} tokens")


def _start(tokens: int) -> Float[Tensor, "T T"]:
    """Before any layer an input is where it is."""
    return torch.where(torch.eye(tokens, dtype=torch.bool), 0.0, torch.inf)


def _through(steps: Float[Tensor, "T I"], seen: Bool[Tensor, "T T"], sequential: bool) -> Float[Tensor, "T I"]:
    """Steps from each input to each output of one more layer."""
    at = torch.arange(len(seen), dtype=steps.dtype)
    cost = 1 + (at[:, None] - at).abs() * sequential
    edges = torch.where(seen, cost, torch.inf)
    return torch.stack([(row[:, None] + steps).amin(0) for row in edges])


@dataclass(frozen=True)
class Published:
    """A row of Vaswani's Table 1: what it says, and what that is exactly where the layers are causal."""

    layer: Layer
    sequential: str
    path: str
    exactly: Callable[[int, int, int], int]  # the longest path for n tokens, k taps, r neighbours


def table(k: int = 3, r: int = 5) -> dict[str, Published]:
    """The four rows. The taps of a stack of convolutions lie 1, k, k^2 ... apart."""
    if k < 2 or r < 2:
        raise UserError(f"a layer sees at least one token beside its own: taps and window must be 2 or more, "
                        f"got {k} and {r}")  # fmt: skip
    attention = partial(mixers.create, "attention", WIDTH, position="none")
    return {
        "attention": Published(lambda _: attention(), "O(1)", "O(1)", lambda n, k, r: 1),
        "recurrence": Published(lambda _: mixers.create("rnn", WIDTH), "O(n)", "O(n)", lambda n, k, r: n),
        "convolution": Published(
            lambda depth: mixers.create("conv", WIDTH, taps=k, dilation=k**depth), "O(1)", "O(log_k(n))",
            lambda n, k, r: _logarithm(n, k),
        ),
        "restricted attention": Published(
            lambda _: attention(window=r), "O(1)", "O(n/r)", lambda n, k, r: -(-(n - 1) // (r - 1))
        ),
    }  # fmt: skip


def _logarithm(n: int, k: int) -> int:
    """The least power of k that is n or more; a sequence of one token is a step, too."""
    power = 1
    while k**power < n:
        power += 1
    return power


@dataclass(frozen=True)
class Row:
    name: str
    published: Published
    counted: Paths
    path: int  # what the published path is exactly

    @property
    def holds(self) -> bool:
        """The chain grows as published (a recurrence's is one product a token), and the path is what it should be."""
        grows = self.published.sequential == "O(n)"
        one_a_token = not grows or self.counted.products == self.counted.tokens
        return self.counted.sequential == grows and one_a_token and self.counted.longest == self.path


def table_rows(tokens: int = 64, k: int = 3, r: int = 5, names: Sequence[str] | None = None) -> list[Row]:
    if tokens < 2:
        raise UserError(f"a path leads from one token to another: at least 2 are needed, got {tokens}")
    known = table(k, r)
    return [
        Row(name, known[name], count_paths(known[name].layer, tokens), known[name].exactly(tokens, k, r))
        for name in (known if names is None else names)
    ]


def draw(make: dict[str, Layer], tokens: int, path: Path) -> Path:
    """Steps from every input to every output, through as many layers as connect them."""
    figure, axes = pyplot().subplots(1, len(make), figsize=(3.6 * len(make), 3.6), squeeze=False)
    for axis, (name, layer) in zip(axes[0], make.items(), strict=True):
        found = count_paths(layer, tokens)
        steps = _start(tokens)
        for depth in range(found.depth):
            one = layer(depth).double().eval()
            seen = sees(one, tokens, noise=0.0 if found.sequential else NOISE)
            steps = _through(steps, seen, found.sequential)
        shown = axis.imshow(torch.where(steps < math.inf, steps, math.nan).numpy(), vmin=0)
        figure.colorbar(shown, ax=axis, shrink=0.7)
        axis.set(title=f"{name}: {found.depth} deep", xlabel="from the input", ylabel="to the output")
    return save(figure, path)
