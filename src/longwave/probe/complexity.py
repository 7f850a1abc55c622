"""What a layer costs, and how that grows: fitted exponents beside those of the two published tables.

Counted exactly, on tensors without data, so that sequences may be as long as the asymptote asks for: parameters,
floating-point operations of a forward pass and of one more token after n, and the bytes of activations that training
keeps. Measured: processor time of a forward pass, on one thread, the least of several rounds in which lengths take
turns. An exponent is the slope of a straight line through three sizes on logarithmic axes, each twice the one before.

Formulas are those of Vaswani et al. 2017, Table 1, and Gu, Goel and Re 2022, Table 1, for n tokens, width d, k taps and
r neighbours; exponents are the formula's where n is much larger than d, and for what mixes channels d large.
Attention is counted in the form that holds its weights, as the tables have it; torch's kernel, which is timed, keeps
n d.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from longwave import mixers, ops
from longwave.compare.flops import Counting
from longwave.mixer import Mixer
from longwave.probe.picture import pyplot, save

TOLERANCE = 0.15  # of an exponent
ROUNDS = 5  # in which a time is taken
WINDOW, TAPS = 1024, 3


@dataclass(frozen=True)
class Growth:
    """A published formula, and its exponents in length and in width; None: the formula is not that of our layer."""

    formula: str
    tokens: float
    width: float | None


@dataclass(frozen=True)
class Layer:
    make: Callable[[int, int], Mixer]  # of width d, for n tokens
    tokens: tuple[int, int]  # the shortest length, and the width there
    width: tuple[int, int]  # the smallest width, and the length there
    timed: tuple[int, int]  # the shortest length that is timed, and the width there
    growth: dict[str, Growth]
    form: str = "torch"  # of its ops, where they are counted
    batch: int = 1


SQUARE = Growth("d^2", 0, 2)
LAYERS = {
    "attention": Layer(
        lambda d, n: mixers.create("attention", d, n_heads=1, position="none"),
        tokens=(1 << 13, 64), width=(64, 1 << 15), timed=(4096, 64), form="torch.weights",
        growth={"parameters": SQUARE, "flops": Growth("n^2 d + n d^2", 2, 1), "memory": Growth("n^2 + n d", 2, 0),
                "time": Growth("n^2 d + n d^2", 2, 1), "a token": Growth("n d + d^2, with a cache", 1, 1)},
    ),
    "recurrence": Layer(
        lambda d, n: mixers.create("rnn", d), tokens=(64, 64), width=(256, 16), timed=(512, 64),
        growth={"parameters": SQUARE, "flops": Growth("n d^2", 1, 2), "memory": Growth("n d", 1, 1),
                "time": Growth("n d^2", 1, 2), "a token": SQUARE},
    ),
    "convolution": Layer(
        lambda d, n: mixers.create("conv", d, taps=TAPS), tokens=(1 << 12, 64), width=(256, 1 << 12),
        timed=(2048, 256),
        growth={"parameters": Growth("k d^2", 0, 2), "flops": Growth("k n d^2", 1, 2), "memory": Growth("n d", 1, 1),
                "time": Growth("k n d^2", 1, 2), "a token": Growth("k d^2", 0, 2)},
    ),
    "restricted attention": Layer(
        lambda d, n: mixers.create("attention", d, n_heads=1, position="none", window=WINDOW),
        tokens=(1 << 13, 64), width=(16, 1 << 14), timed=(4096, 32),
        growth={"parameters": SQUARE, "flops": Growth("r n d", 1, 1), "time": Growth("r n d", 1, 1),
                "a token": Growth("r d", 0, 1)},
    ),
    "long convolution": Layer(
        lambda d, n: mixers.create("long_conv", d, longest=n), tokens=(1 << 15, 64), width=(1024, 1 << 20),
        timed=(4096, 64),
        growth={"parameters": Growth("n d", 1, 1), "flops": Growth("n d (log n + d)", 1, 2),
                "memory": Growth("n d", 1, 1), "time": Growth("n d (log n + d)", 1, 2),
                "a token": Growth("n d^2", 1, None)},
    ),
    "s4": Layer(
        lambda d, n: mixers.create("s4", d, d_state=16), tokens=(1 << 13, 64), width=(1024, 256),
        timed=(1 << 14, 16), batch=8,
        growth={"parameters": SQUARE, "flops": Growth("n d (log n + d)", 1, 2), "memory": Growth("n d", 1, 1),
                "time": Growth("n d (log n + d)", 1, 2), "a token": SQUARE},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """How a quantity grows with a size."""

    layer: str
    quantity: str
    against: str  # length or width
    formula: str
    theory: float | None
    sizes: Sequence[int]
    values: Sequence[float]

    @property
    def exponent(self) -> float:
        return exponent(self.sizes, self.values)

    @property
    def holds(self) -> bool | None:
        """Whether it is the published one; None where there is none."""
        return None if self.theory is None else abs(self.exponent - self.theory) <= TOLERANCE


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def fit_complexity(names: Sequence[str] | None = None, *, timed: bool = True) -> Iterator[Fitted]:
    """Each layer's quantities against length, then width; times against length alone."""
    for name in LAYERS if names is None else names:
        layer = LAYERS[name]
        for against, (least, other) in (("length", layer.tokens), ("width", layer.width)):
            sizes = [least, 2 * least, 4 * least]
            counted = [count(layer, *((n, other) if against == "length" else (other, n))) for n in sizes]
            for quantity, growth in layer.growth.items():
                theory = growth.tokens if against == "length" else growth.width
                if quantity != "time":
                    values = [each[quantity] for each in counted]
                    yield Fitted(name, quantity, against, growth.formula, theory, sizes, values)
        if timed:
            least, growth = layer.timed[0], layer.growth["time"]
            sizes = [least, 2 * least, 4 * least]
            yield Fitted(name, "time", "length", growth.formula, growth.tokens, sizes, seconds(layer, sizes))


def count(layer: Layer, tokens: int, width: int) -> dict[str, float]:
    """Parameters, flops of a forward pass and of one more token, and bytes kept for the backward pass."""
    with torch.device("meta"), ops.use(layer.form):
        mixer = layer.make(width, tokens)
        x = torch.randn(layer.batch, tokens, width)
        with torch.no_grad(), Counting() as forward:
            mixer(x)
        memory = kept(mixer, x, mixer.parameters())
        room = {"capacity": tokens + 1} if "capacity" in inspect.signature(mixer.init_state).parameters else {}
        _, state = mixer(x[:1], mixer.init_state(1, **room))
        with Counting() as step:
            mixer(x[:1, :1], state)
    parameters = sum(p.numel() for p in mixer.parameters())
    return {"parameters": parameters, "flops": forward.count, "memory": memory, "a token": step.count}


def kept(layer: Callable[[Tensor], tuple[Tensor, object]], x: Tensor, parameters: Iterable[Tensor]) -> int:
    """Bytes that the backward pass will ask for, parameters aside; what several operations keep counts once."""
    own = {p.untyped_storage()._cdata for p in parameters}
    found: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        if t.untyped_storage()._cdata not in own:
            found[t.untyped_storage()._cdata] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x)
    return sum(t.untyped_storage().nbytes() for t in found.values())


def seconds(layer: Layer, lengths: Sequence[int]) -> list[float]:
    """Of the processor, for a forward pass at each length."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        made = [(layer.make(layer.timed[1], n), torch.randn(1, n, layer.timed[1])) for n in lengths]
        best = [float("inf")] * len(lengths)
        with torch.no_grad():
            for mixer, x in made:
                mixer(x)
            for _ in range(ROUNDS):
                for i, (mixer, x) in enumerate(made):
                    start = time.thread_time()
                    mixer(x)
                    best[i] = min(best[i], time.thread_time() - start)
        return best
    finally:
        torch.set_num_threads(threads)


def draw(found: Sequence[Fitted], path: Path) -> Path:
    """A column for every quantity, against length above and width below; on logarithmic axes powers are straight."""
    kinds = list(dict.fromkeys(each.quantity for each in found))
    figure, axes = pyplot().subplots(2, len(kinds), figsize=(3.6 * len(kinds), 6.5), squeeze=False)
    for row, against in zip(axes, ("length", "width"), strict=True):
        for axis, kind in zip(row, kinds, strict=True):
            own = [each for each in found if (each.quantity, each.against) == (kind, against)]
            for each in own:
                axis.plot(each.sizes, each.values, marker="o", label=f"{each.layer}: {each.exponent:.2f}")
            axis.set(title=kind, xlabel=against, xscale="log", yscale="log")
            if own:
                axis.legend(fontsize=7)
    return save(figure, path)
