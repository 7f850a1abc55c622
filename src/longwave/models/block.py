"""How mixers are put together: a branch around each, a stack of branches, a backbone of stacks. All three are mixers.

A hybrid is a list expression: `blocks=[[mamba, ffn]] * 7 + [[attention, ffn]]`. What a mixer `gives` is handed to the
later ones that take it, by a dictionary that lives as long as one call of the outermost stack.
"""

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longwave.errors import UserError, choose
from longwave.hints import hints
from longwave.mixer import Mixer
from longwave.mixers import create
from longwave.models.reversible import two_streams
from longwave.parts.dropout import dropout
from longwave.parts.norm import BatchNorm, make_norm
from longwave.spec import Spec
from longwave.state import Parts, State

Residual = Literal["pre", "post", "sandwich", "none", "reversible"]
WideResidual = Literal[Residual, "reversible_wide"]
Item = Spec | Sequence["Item"]


class Branch(Mixer):
    """A mixer beside a residual stream.

    pre       x + f(norm(x))              post    norm(x + f(x))
    sandwich  x + norm'(f(norm(x)))       none    f(norm(x))
    """

    def __init__(
        self, d_model: int, mixer: Mixer, *, norm: str | Spec = "rms", residual: Residual = "pre", dropout: float = 0.0,
        tied_dropout: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        choose("residual", residual, dict.fromkeys(("pre", "post", "sandwich", "none")))
        self.mixer, self.residual, self.dropout, self.tied_dropout = mixer, residual, dropout, tied_dropout
        self.norm = make_norm(norm, d_model)
        self.norm_out = make_norm(norm, d_model) if residual == "sandwich" else None
        self.causal, self.continuous, self.growth = mixer.causal, mixer.continuous, mixer.growth
        self.couples = tuple(sorted({*mixer.couples, *getattr(self.norm, "couples", ())}))  # type: ignore[misc]
        self.gives, self.takes = mixer.gives, mixer.takes

    def init_state(self, batch: int, **given: Any) -> State:
        return _init_state(self.mixer, batch, given)

    def forward(
        self, x: Tensor, state: Any = None, lengths: Tensor | None = None, dt: float | Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Any]:  # fmt: skip
        seen = x if self.residual == "post" else self.norm(x, None, lengths)
        y, state = self.mixer(seen, state, lengths, dt, handed)
        if self.norm_out is not None:
            y = self.norm_out(y, None, lengths)
        if self.tied_dropout and self.training:
            kept = dropout(y.new_ones(len(y), 1, y.shape[2]), self.dropout, True)
            if self.residual in ("pre", "sandwich"):
                return torch.addcmul(x, y, kept), state
            y = y * kept
        else:
            y = dropout(y, self.dropout, self.training)
        if self.residual == "none":
            return y, state
        return self.norm(x, y, lengths) if self.residual == "post" else x + y, state


class Stack(Mixer):
    """One mixer after another. `dt` goes to those that know time; a part whose state is None starts afresh."""

    def __init__(self, parts: Sequence[Mixer]) -> None:
        super().__init__()
        for i, part in enumerate(parts):
            self.add_module(str(i), part)
        self.causal = all(part.causal for part in parts)
        self.continuous = any(part.continuous for part in parts)
        order = ("constant", "window", "log", "linear")
        self.growth = max((part.growth for part in parts), key=order.index, default="constant")
        self.couples = tuple(sorted({each for part in parts for each in part.couples}))  # type: ignore[misc]
        given: set[str] = set()
        lacking: set[str] = set()
        for part in parts:
            lacking |= {*part.takes} - given
            given |= {*part.gives}
        self.gives, self.takes = tuple(sorted(given)), tuple(sorted(lacking))

    def parts(self) -> list[Any]:
        return [part for part in self._modules.values() if isinstance(part, Mixer)]

    def init_state(self, batch: int, **given: Any) -> Parts:
        """`given` (capacity, memory, lengths) goes to the parts that ask for it."""
        return Parts(tuple(_init_state(part, batch, given) for part in self.parts()))

    def forward(
        self, x: Tensor, state: Parts | None = None, lengths: Tensor | None = None, dt: float | Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Parts | None]:  # fmt: skip
        handed = {} if handed is None else handed
        parts = self.parts()
        news = []
        for part, old in zip(parts, [None] * len(parts) if state is None else state.parts, strict=True):
            x, new = part(x, old, lengths, dt if part.continuous else None, handed)
            news.append(new)
        return x, None if state is None else Parts(tuple(news))


class Backbone(Stack):
    """Blocks of branches, built from specs, and a last norm. Initialisation runs here, once.

    Where the residual is "reversible", branches write in turn into two streams (see models.reversible), whose mean is
    the output; "reversible_wide": both beside one another, twice as wide. The first blocks may be branches that say
    their own residual (positions): they come before there are two streams.
    """

    def __init__(
        self,
        d_model: int,
        *,
        blocks: Sequence[Item],
        norm: str | Spec = "rms",
        residual: WideResidual = "pre",
        dropout: float = 0.0,
        tied_dropout: bool = False,
        last_norm: str | Spec | None = None,
        init_std: float | None = None,
    ) -> None:
        self.residual, self.reversible = residual, residual in ("reversible", "reversible_wide")
        self.d_out = 2 * d_model if residual == "reversible_wide" else d_model
        alone = "none" if self.reversible else residual
        wrap = functools.partial(
            _branch, d_model, dict(norm=norm, residual=alone, dropout=dropout, tied_dropout=tied_dropout)
        )
        super().__init__([Stack([wrap(spec) for spec in _flat(block)]) for block in blocks])
        if self.takes:
            raise UserError(f"a layer takes {', '.join(map(repr, self.takes))}, which no layer before it gives")
        if self.reversible and any(isinstance(part, BatchNorm) for part in self.modules()):
            raise UserError("a reversible model computes its layers twice a step: batch norm would count a batch twice")
        if self.reversible and self.gives:
            raise UserError("a reversible model computes its layers one by one again: none can hand on what it gives")
        own = [all(spec.name == "branch" and "residual" in spec.options for spec in _flat(block)) for block in blocks]
        self.n_before = own.index(False) if False in own else len(own)
        if self.reversible and True in own[self.n_before :]:
            raise UserError("of a reversible model only the first layers have a residual of their own")
        self.norm = make_norm(last_norm or ("none" if residual == "post" else norm), self.d_out)
        if "rows" in getattr(self.norm, "couples", ()):
            self.couples = ("rows", "times")  # type: ignore[misc]
        if init_std is not None:
            _initialise(self, init_std, n_branches=sum(len(block.parts()) for block in self.parts()))

    def forward(
        self, x: Tensor, state: Parts | None = None, lengths: Tensor | None = None, dt: float | Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Parts | None]:  # fmt: skip
        if self.reversible:
            x, state = self._two_streams(x, state, lengths, dt)
        else:
            x, state = super().forward(x, state, lengths, dt, handed)
        return self.norm(x, None, lengths), state

    def _two_streams(
        self, x: Tensor, state: Parts | None, lengths: Tensor | None, dt: float | Tensor | None
    ) -> tuple[Tensor, Parts | None]:
        before, blocks = self.parts()[: self.n_before], self.parts()[self.n_before :]
        branches = [branch for block in blocks for branch in block.parts()]
        firsts: list[State | None] = [None] * len(before) if state is None else list(state.parts[: self.n_before])
        for i, block in enumerate(before):
            x, firsts[i] = block(x, firsts[i], lengths, dt if block.continuous else None)
        if state is None:
            return self._joined(*two_streams(x, branches, lengths, dt)), None
        olds = [each for block, old in zip(blocks, state.parts[self.n_before :], strict=True)
                for each in ([None] * len(block.parts()) if old is None else old.parts)]  # type: ignore[attr-defined]  # fmt: skip
        a, b, news = x, x, []
        for branch, old in zip(branches, olds, strict=True):
            y, new = branch(b, old, lengths, dt if branch.continuous else None)
            a, b = b, a + y
            news.append(new)
        rest = iter(news)
        lasts = [Parts(tuple(next(rest) for _ in block.parts())) for block in blocks]
        return self._joined(a, b), Parts((*firsts, *lasts))

    def _joined(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], -1) if self.residual == "reversible_wide" else (a + b) / 2


def _flat(block: Item) -> list[Spec]:
    return [block] if isinstance(block, Spec) else [spec for item in block for spec in _flat(item)]


def _branch(d_model: int, defaults: dict[str, Any], spec: Spec) -> Branch:
    """A mixer's spec gets the backbone's branch; Spec("branch", mixer=..., norm=...) one of its own."""
    if spec.name != "branch":
        return Branch(d_model, create(spec, d_model), **defaults)
    options = {**defaults, **spec.options}
    return Branch(d_model, create(options.pop("mixer"), d_model), **options)


def _initialise(backbone: Backbone, std: float, n_branches: int) -> None:
    """Normal weights, zero biases; what writes into the residual stream is smaller by the square root of the number
    of branches (Radford et al. 2019, section 2.3). A parameter whose initial value means something keeps it.
    """
    matrices = {id(m.weight) for m in backbone.modules() if isinstance(m, nn.Linear)}
    biases = {id(m.bias) for m in backbone.modules() if isinstance(m, nn.Linear)}
    with torch.no_grad():
        for _, parameter, wish in hints(backbone):
            if wish.own_init:
                continue
            if id(parameter) in matrices:
                parameter.normal_(0, std / math.sqrt(n_branches) if wish.residual else std)
            elif id(parameter) in biases:
                parameter.zero_()


def _init_state(part: Mixer, batch: int, given: dict[str, Any]) -> State:
    takes = inspect.signature(part.init_state).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()):
        return part.init_state(batch, **given)
    return part.init_state(batch, **{name: value for name, value in given.items() if name in takes})
