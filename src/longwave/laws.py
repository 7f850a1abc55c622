"""The laws that every mixer keeps, each a function that tries one case, and the search for the smallest that breaks.

    check("mamba")                  a registered mixer
    check(MyMixer)                  a class of one's own
    check(lambda d: MyMixer(d, window=3))

A law is `law(subject, case)`; it raises `Broken`, saying where. `check` goes through cases from the smallest up, so
the first one that breaks is the smallest. The tests draw larger cases at random from the same laws.
"""

import copy
import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longwave import mixers
from longwave.errors import UserError
from longwave.files import read_tensors, write_tensors
from longwave.hints import hints
from longwave.mixer import HALF, Mixer, valid
from longwave.models.block import Branch, Stack
from longwave.ops.dispatch import use
from longwave.record import aux_losses
from longwave.registry import check_options, schema
from longwave.state import State
from longwave.tolerance import TOLERANCE, apart


class Broken(Exception):
    """A law does not hold; the text says where."""


class NotDeclared(Exception):
    """The law is about something that the class says it does not do."""


@dataclass(frozen=True)
class Case:
    """What a law is tried on: sizes, where the sequence is cut, how long the rows are."""

    T: int = 2
    B: int = 1
    cuts: tuple[int, ...] = ()
    lengths: tuple[int, ...] | None = None
    started: bool = False  # from a state that has seen a ragged past, instead of a fresh one
    dt: str | None = None  # for continuous mixers: "number", "row" or "token"
    dtype: torch.dtype = torch.float64
    seed: int = 0

    def __str__(self) -> str:
        words = [f"T={self.T}"]
        if self.cuts:
            words.append(f"cut into {'+'.join(map(str, self.cuts))}")
        if self.lengths is not None:
            words.append(f"lengths {', '.join(map(str, self.lengths))}")
        if self.started:
            words.append("from a state under way")
        if self.dt:
            words.append({"number": "dt=2", "row": "a dt a row", "token": "a dt a token"}[self.dt])
        return ", ".join(words)


class Subject:
    """A mixer to be tried: how to make one, and inputs that suit it."""

    def __init__(self, what: "str | type[Mixer] | Mixer | Callable[..., Mixer]", d_model: int = 8) -> None:
        self.cls = mixers.registry.get(what) if isinstance(what, str) else what if isinstance(what, type) else None
        self.d_model = d_model
        if isinstance(what, Mixer):
            self._make: Callable[[int], Mixer] = lambda d: copy.deepcopy(what)
        elif self.cls is not None:
            self._make = self.cls
        elif callable(what):
            takes = len(inspect.signature(what).parameters)
            self._make = (lambda d: what(d)) if takes else (lambda d: what())
        else:
            raise UserError(f"check takes a Mixer, its class, its name or a function that makes one, not {what!r}")
        self.sizes = isinstance(what, str | type)  # whether it can be built at other widths
        sample = self._make(d_model)
        if not isinstance(sample, Mixer):
            raise UserError(f"{what!r} makes a {type(sample).__name__}, which is no Mixer")
        self.name = type(sample).__name__
        self.causal, self.continuous, self.growth = sample.causal, sample.continuous, sample.growth
        self.dead = dict(type(sample).dead)
        self.needs = [
            name
            for name, p in inspect.signature(sample.init_state).parameters.items()
            if name != "batch" and p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        if self.needs not in ([], ["memory"]):
            raise UserError(f"{self.name}.init_state needs {self.needs}: the laws know how to give it a memory only")

    def make(self, case: Case, d_model: int | None = None, randomise: bool = False) -> Mixer:
        torch.manual_seed(case.seed)
        mixer = self._make(d_model or self.d_model).to(case.dtype).eval()
        if randomise:
            with torch.no_grad():
                for p in mixer.parameters():
                    p.add_(torch.randn_like(p) * 0.3)
        return mixer

    def x(self, case: Case, T: int | None = None, seed: int = 1, d_model: int | None = None) -> Tensor:
        draw = torch.Generator().manual_seed(case.seed * 1000 + seed)
        shape = (case.B, T or case.T, d_model or self.d_model)
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(case.dtype)

    def state(self, mixer: Mixer, case: Case) -> State:
        given: dict[str, Tensor] = {}
        if self.needs:
            given["memory"] = self.x(case, T=5, seed=2, d_model=getattr(mixer, "d_memory", None))
            if "lengths" in inspect.signature(mixer.init_state).parameters:
                given["lengths"] = (torch.arange(case.B) * 3 + 5) % 6
        state = mixer.init_state(case.B, **given)
        if case.started:
            with torch.no_grad():
                past = torch.arange(case.B) % 4 + (1 if case.B == 1 else 0)
                _, state = mixer(self.x(case, T=4, seed=3), state.detach(), past)
            state = state.snapshot().map(lambda t: t.clone().requires_grad_() if t.is_floating_point() else t.clone())
        return state

    def begins(self, mixer: Mixer, case: Case) -> Any:
        """A state where the mixer has one or cannot do without, else None."""
        return self.state(mixer, case) if self.causal and (self.needs or case.started) else None

    def dt(self, case: Case, T: int | None = None, seed: int = 4) -> Any:
        draw = torch.Generator().manual_seed(case.seed * 1000 + seed)
        shape = {"row": (case.B,), "token": (case.B, T or case.T)}.get(case.dt or "")
        if case.dt is None:
            return None
        return 2.0 if shape is None else (torch.rand(shape, generator=draw, dtype=torch.float64) + 0.5).to(case.dtype)


def tokens(dt: Any, rows: Any, start: int, stop: int) -> Any:
    """The dt of some rows and of the tokens start ... stop - 1."""
    if isinstance(dt, Tensor):
        return dt[rows, start:stop] if dt.ndim == 2 else dt[rows]
    return dt


def in_pieces(mixer: Mixer, x: Tensor, state: Any, cuts: Sequence[int], dt: Any = None) -> tuple[Tensor, Any]:
    """The mixer over x, cut into pieces of these lengths, the state passed on."""
    ys, start = [], 0
    for size in cuts:
        y, state = mixer(x[:, start : start + size], state, None, tokens(dt, slice(None), start, start + size))
        ys.append(y)
        start += size
    return torch.cat(ys, 1), state


def same(what: str, got: Tensor | None, wanted: Tensor | None, case: Case) -> None:
    """Raise unless two tensors agree within the tolerance of the case's dtype. None is all zeros."""
    if got is None and wanted is None:
        return
    got = torch.zeros_like(wanted) if got is None else got  # type: ignore[arg-type]
    wanted = torch.zeros_like(got) if wanted is None else wanted
    if apart(got, wanted) <= TOLERANCE[case.dtype]:
        return
    if got.shape != wanted.shape:
        raise Broken(f"{case}: {what} has shape {list(got.shape)}, should have {list(wanted.shape)}")
    gap = (got - wanted).abs().double().nan_to_num(torch.inf)
    first = torch.nonzero(gap > TOLERANCE[case.dtype] * (1 + wanted.abs().max()))[0].tolist()
    where = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "step"), first, strict=False)) if gap.ndim == 3 else ""
    values = f"{got[tuple(first)].item():.6g} instead of {wanted[tuple(first)].item():.6g}"
    raise Broken(f"{case}: {what}{' at ' + where if where else ''} is {values}")


def gradients(loss: Tensor, mixer: Mixer, x: Tensor, state: Any) -> list[tuple[str, Tensor | None]]:
    """Of x, of the state's parts, of every parameter."""
    parts = [t for t in state.leaves() if t.requires_grad and t.is_leaf] if isinstance(state, State) else []
    named = [("the gradient of x", x), *(("the gradient of the state", t) for t in parts)]
    named += [(f"the gradient of {name}", p) for name, p in mixer.named_parameters()]
    named = [(name, t) for name, t in named if t.requires_grad]
    if not loss.requires_grad:  # nothing to learn, and the output does not depend on x
        return [(name, None) for name, _ in named]
    found = torch.autograd.grad(loss, [t for _, t in named], allow_unused=True)
    return [(name, g) for (name, _), g in zip(named, found, strict=True)]


def weigh(y: Tensor, seed: int) -> Tensor:
    """A random weight for every number of y, so that a loss sees each of them."""
    draw = torch.Generator().manual_seed(seed)
    return (y * torch.randn(y.shape, generator=draw, dtype=torch.float64).to(y.dtype)).sum()


def split(subject: Subject, case: Case) -> None:
    """However a sequence is cut: outputs, continuation (what the final state answers) and gradients."""
    if not subject.causal:
        raise NotDeclared("it sees the whole sequence at once")
    mixer = subject.make(case)
    x, later = subject.x(case).requires_grad_(), subject.x(case, T=3, seed=5)
    dt, dt_later = subject.dt(case), subject.dt(case, T=3, seed=6)

    def answers(cuts: Sequence[int]) -> list[tuple[str, Tensor | None]]:
        state = subject.state(mixer, case)
        y, last = in_pieces(mixer, x, state, cuts, dt)
        after, _ = mixer(later, last, None, dt_later)
        found = gradients(weigh(y, 1) + weigh(after, 2), mixer, x, state)
        return [("the output", y), ("the output after it", after), *found]

    whole = answers([case.T])
    for (what, got), (_, wanted) in zip(answers(case.cuts), whole, strict=True):
        same(what, got, wanted, case)
    with torch.no_grad():  # where states may be written in place
        y, last = in_pieces(mixer, x, subject.state(mixer, case).detach(), case.cuts, dt)
        same("the output without gradients", y, whole[0][1], case)
        fork = last.clone()
        mixer(-later, fork, None, dt_later)
        after, _ = mixer(later, last, None, dt_later)
        same("the output after it, beside a clone that went another way,", after, whole[1][1], case)
        if not case.started and not subject.needs:
            y, none = mixer(x, None, None, dt)
            same("the output with state=None", y, whole[0][1], case)
            if none is not None:
                raise Broken(f"{case}: state=None came back as a state")


def causality(subject: Subject, case: Case) -> None:
    """No output depends on a later input, and no gradient flows back from one."""
    if not subject.causal:
        raise NotDeclared("it sees the whole sequence at once")
    mixer = subject.make(case)
    x = subject.x(case).requires_grad_()
    y, _ = mixer(x, subject.begins(mixer, case))
    for t in range(case.T - 1):
        if not y.requires_grad:
            break
        (seen,) = torch.autograd.grad(weigh(y[:, t : t + 1], t), x, retain_graph=True, allow_unused=True)
        if seen is None:
            break
        later = seen[:, t + 1 :].abs().amax((0, 2))
        if bool((later > TOLERANCE[case.dtype]).any()):
            s = t + 1 + int(torch.nonzero(later > TOLERANCE[case.dtype])[0])
            raise Broken(f"{case}: the output at step {t} depends on the input at step {s}")
    cut = max(1, case.T // 2)
    other = torch.cat([x[:, :cut], subject.x(case, seed=7)[:, cut:]], 1).detach()
    with torch.no_grad():
        changed, _ = mixer(other, subject.begins(mixer, case))
    same(f"the output when only later inputs (from step {cut}) change", changed[:, :cut], y[:, :cut], case)


def padding(subject: Subject, case: Case) -> None:
    """A row padded with NaN answers as it does alone: outputs, gradients, and the state at its own length."""
    mixer = subject.make(case)
    lengths = torch.tensor(case.lengths)
    real = valid(subject.x(case), lengths)[..., None]
    x = torch.where(real, subject.x(case), torch.nan).requires_grad_()
    later, dt, dt_later = subject.x(case, T=3, seed=5), subject.dt(case), subject.dt(case, T=3, seed=6)
    dt_bad = torch.where(real[..., 0], dt, torch.nan) if isinstance(dt, Tensor) and dt.ndim == 2 else dt
    each, each_after = subject.x(case, seed=8), subject.x(case, T=3, seed=9)  # a weight for every output

    state = subject.state(mixer, case) if subject.causal else None
    y, last = mixer(x, state, lengths, dt_bad)
    y = torch.where(real, y, 0)
    after = mixer(later, last, None, dt_later)[0] if subject.causal else later
    total = gradients((y * each).sum() + (after * each_after).sum(), mixer, x, state)

    alone: list[list[tuple[str, Tensor | None]]] = []
    for b, n in enumerate(case.lengths or ()):
        row = slice(b, b + 1)
        whole = subject.state(mixer, case) if subject.causal else None
        mine, loss = (None if whole is None else whole.rows([b])), 0 * x[row, :n].sum()
        if n:
            y_b, mine = mixer(x[row, :n], mine, None, tokens(dt, row, 0, n))
            same(f"row {b}, padded,", y[row, :n], y_b, case)
            loss = loss + (y_b * each[row, :n]).sum()
        if subject.causal:
            after_b, _ = mixer(later[row], mine, None, tokens(dt_later, row, 0, 3))
            same(f"what row {b} answers after its padding", after[row], after_b, case)
            loss = loss + (after_b * each_after[row]).sum()
        alone.append(gradients(loss, mixer, x, whole))
    for (what, got), *of_rows in zip(total, *alone, strict=True):
        found = [g for _, g in of_rows if g is not None]
        same(what, got, torch.stack(found).sum(0) if found else None, case)

    if state is not None:
        with torch.no_grad():
            y_in_place, last = mixer(x, state.detach().clone(), lengths, dt_bad)
            same("the output without gradients", torch.where(real, y_in_place, 0), y, case)
            same("the output after it without gradients", mixer(later, last, None, dt_later)[0], after, case)


def rows(subject: Subject, case: Case) -> None:
    """Rows do not see one another: permuted, split and joined batches answer alike; in place equals copied."""
    mixer = subject.make(case)
    x, later = subject.x(case), subject.x(case, T=3, seed=5)
    with torch.no_grad():
        y, _ = mixer(x, subject.begins(mixer, case))
        for b in range(case.B):
            state = subject.begins(mixer, case)
            yb, _ = mixer(x[b : b + 1], None if state is None else state.rows([b]))
            same(f"row {b}, beside others,", y[b : b + 1], yb, case)
        if not subject.causal:
            return
        state = subject.state(mixer, case).detach()
        order = torch.randperm(case.B, generator=torch.Generator().manual_seed(case.seed))
        after, _ = mixer(x, state.clone())
        same("the output of permuted rows", mixer(x[order], state.rows(order))[0], after[order], case)
        joined = type(state).cat([state.rows([b]) for b in range(case.B)])
        same("the output of rows joined by State.cat", mixer(x, joined)[0], after, case)
    idle = torch.arange(case.B) % 2  # one token, where every other row gets none: the decoding path
    copied = mixer(later, mixer(later[:, :1], state, idle)[1])[0]
    with torch.no_grad():
        placed = mixer(later, mixer(later[:, :1], state.clone(), idle)[1])[0]
    same("the output after one token written in place", placed, copied.detach(), case)


def every_parameter(subject: Subject, case: Case) -> None:
    """Every parameter gets a finite gradient, and a non-zero one unless the class says why it cannot."""
    mixer = subject.make(case, randomise=True)
    x = subject.x(case).requires_grad_()
    with aux_losses() as terms:
        y, _ = mixer(x, subject.state(mixer, replace(case, started=False)) if subject.causal else None)
    loss = weigh(y, 1) + sum(term.total for term in terms)
    for what, g in gradients(loss, mixer, x, None):
        name = what.removeprefix("the gradient of ")
        if g is not None and not bool(g.isfinite().all()):
            raise Broken(f"{case}: {what} is not finite")
        if name != "x" and name not in subject.dead and (g is None or not bool(g.any())):
            raise Broken(f"{case}: {what} is zero; if it is so by nature, declare it: dead = {{{name!r}: 'why'}}")


def same_seed(subject: Subject, case: Case) -> None:
    """The same seed gives bitwise the same result; saving, loading and wrapping change nothing."""
    mixer, twin = subject.make(case), subject.make(case)
    x = subject.x(case)

    def run(m: Mixer, *, train: bool = False) -> Tensor:
        torch.manual_seed(case.seed + 1)
        with torch.no_grad():
            return m.train(train)(x, subject.begins(m, case))[0]

    for train in (False, True):
        if not torch.equal(run(mixer, train=train), run(twin, train=train)):
            raise Broken(f"{case}: two mixers made and run with one seed differ in {'train' if train else 'eval'}()")
    before = {name: t.clone() for name, t in mixer.state_dict().items()}
    Branch(subject.d_model, Stack([mixer]))
    for name, t in mixer.state_dict().items():
        if not torch.equal(before[name], t):
            raise Broken(f"{case}: wrapping it in a block changes {name}")
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "weights", before, {"kind": "model"})
        other = subject.make(replace(case, seed=case.seed + 7))
        other.load_state_dict(read_tensors(Path(folder) / "weights", "model")[0])
        if not torch.equal(run(mixer), run(other)):
            raise Broken(
                f"{case}: it answers otherwise after its weights are saved and loaded: something random is no buffer"
            )
        if subject.causal:
            state = subject.state(mixer, case).detach()
            state.save(Path(folder) / "state")
            loaded = State.load(Path(folder) / "state", like=subject.state(mixer, replace(case, started=False)))
            with torch.no_grad():
                same("the output from a state saved and loaded", mixer(x, loaded)[0], mixer(x, state)[0], case)


def state_size(subject: Subject, case: Case) -> None:
    """The state grows with the tokens seen as the class declares."""
    if not subject.causal:
        raise NotDeclared("it has no state")
    mixer = subject.make(case)
    sizes = {}
    with torch.no_grad():
        for n in (64, 128, 256, 512):
            _, state = mixer(subject.x(case, T=n), subject.state(mixer, case))
            sizes[n] = state.nbytes
    a, b, c, d = sizes.values()
    grows = {
        "constant": a == b == c == d,
        "window": c == d,
        "log": c <= d <= 1.5 * c and d <= 4 * a,
        "linear": 1.5 * b < d <= 2.5 * c,
    }
    if subject.growth not in grows:
        raise Broken(f"growth = {subject.growth!r} is none of {', '.join(grows)}")
    if not grows[subject.growth]:
        seen = ", ".join(f"{size} bytes after {n}" for n, size in sizes.items())
        raise Broken(f"declared {subject.growth!r}, but a row's state takes {seen} tokens")


def backends(subject: Subject, case: Case) -> None:
    """The forms in torch, and kernels wherever they can run, answer as the definitions do: outputs, gradients, final
    state."""
    mixer = subject.make(case)
    x, later = subject.x(case).requires_grad_(), subject.x(case, T=3, seed=5)
    lengths = None if case.lengths is None else torch.tensor(case.lengths)

    def answers(backend: str | None) -> list[tuple[str, Tensor | None]]:
        with nullcontext() if backend is None else use(backend):
            state = subject.state(mixer, case) if subject.causal else None
            y, last = mixer(x, state, lengths, subject.dt(case))
            y = y if lengths is None else torch.where(valid(x, lengths)[..., None], y, 0)
            after = mixer(later, last)[0] if subject.causal else later * 0
            return [("the output", y), ("the output after it", after),
                    *gradients(weigh(y, 1) + weigh(after, 2), mixer, x, state)]  # fmt: skip

    wanted = answers("reference")
    for backend in ("torch",) if case.dtype is torch.float64 else ("torch", None):  # no kernel computes in float64
        for (what, got), (_, right) in zip(answers(backend), wanted, strict=True):
            same(f"{what} by {backend or 'the preferred forms'}", got, right, case)


def odd_sizes(subject: Subject, case: Case) -> None:
    """Any length and width works, or is told what would; an unknown option is an error that names a known one."""
    if subject.cls is not None:
        for option in schema(subject.cls):
            try:
                check_options(subject.name, subject.cls, {option.name + "_": option.default})
            except UserError as error:
                if repr(option.name) not in str(error):
                    raise Broken(f"a wrong option {option.name + '_'!r} is not put right: {error}") from error
            else:
                raise Broken(f"an unknown option {option.name + '_'!r} is accepted")
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(subject.cls).parameters.values()):
            raise Broken("its constructor takes **kwargs: a misspelt option would be swallowed")
    for d in (subject.d_model, 12, 7, 1) if subject.sizes else (subject.d_model,):
        try:
            mixer = subject.make(case, d_model=d)
        except UserError:  # it said what would be right
            continue
        for T in (1, 2, 7):
            x = subject.x(case, T=T, d_model=d)
            state = None
            if subject.needs:
                memory = subject.x(case, T=3, d_model=getattr(mixer, "d_memory", d))
                state = mixer.init_state(case.B, memory=memory)  # type: ignore[call-arg]
            y, _ = mixer(x, state)
            if y.shape != x.shape or not bool(y.isfinite().all()):
                raise Broken(f"T={T}, d_model={d}: the output has shape {list(y.shape)}, or is not finite")


def half_precision(subject: Subject, case: Case) -> None:
    """In bfloat16 and float16 outputs and gradients stay finite; parameters hinted float32 stay float32."""
    for dtype in HALF:
        mixer = subject.make(case).to(dtype)
        for name, p, wish in hints(mixer):
            if p.dtype is not (torch.float32 if wish.float32 else dtype):
                raise Broken(f"{name} is {p.dtype} in a mixer moved to {dtype}")
        case = replace(case, dtype=dtype)
        x = subject.x(case).requires_grad_()
        y, _ = mixer(x, subject.begins(mixer, case))
        if y.dtype is not dtype or not bool(y.isfinite().all()):
            raise Broken(f"{case}: in {dtype} the output is {y.dtype}, or is not finite")
        for what, g in gradients(y.float().sum(), mixer, x, None):
            if g is not None and not bool(g.isfinite().all()):
                raise Broken(f"{case}: in {dtype} {what} is not finite")


@dataclass(frozen=True)
class Law:
    name: str
    holds: Callable[[Subject, Case], None]
    cases: Callable[[Subject], Iterator[Case]]


def _times(subject: Subject) -> tuple[str | None, ...]:
    return (None, "number", "row", "token") if subject.continuous else (None,)


def _cuts(subject: Subject) -> Iterator[Case]:
    for T in (2, 3, 4, 5):
        for k in range(1, T):
            yield Case(T=T, cuts=(k, T - k))
            yield Case(T=T, cuts=(k, T - k), started=True)
    for T in (7, 13, 20):
        yield Case(T=T, B=3, cuts=(1,) * T, started=True)
    for T in (11, 17, 33, 70):
        for i, dt in enumerate(_times(subject)):
            yield Case(T=T, B=3, cuts=(T // 3, 1, T - T // 3 - 1), started=True, dt=dt, seed=i)
            yield Case(T=T, B=2, cuts=(T - 2, 2), dt=dt, seed=i)


def _lengths(subject: Subject) -> Iterator[Case]:
    for T in (2, 3, 5):
        for n in range(1, T):
            yield Case(T=T, lengths=(n,))
    for T in (4, 11, 20, 70):
        for i, dt in enumerate(_times(subject)):
            yield Case(T=T, B=3, lengths=(T, 0, T // 2), started=subject.causal, dt=dt, seed=i)
            yield Case(T=T, B=4, lengths=(T - 1, 1, T, T // 3), dt=dt, seed=i)


def _batches(subject: Subject) -> Iterator[Case]:
    for T in (1, 2, 5, 9, 20):
        yield Case(T=T, B=2)
        if subject.causal:
            yield Case(T=T, B=3, started=True)


def _forms(subject: Subject) -> Iterator[Case]:
    for T in (1, 3, 9, 37, 70):
        yield Case(T=T, B=2, started=subject.causal)
        for dt in _times(subject):
            yield Case(T=T, B=3, lengths=(T, 0, T // 2), started=subject.causal, dt=dt)


LAWS = (
    Law("split", split, _cuts),
    Law("causality", causality, lambda s: (Case(T=T, B=2, started=False) for T in (2, 3, 5, 12, 20))),
    Law("padding", padding, _lengths),
    Law("rows", rows, _batches),
    Law("gradients", every_parameter, lambda s: iter([Case(T=12, B=3), Case(T=12, B=3, dtype=torch.float32)])),
    Law("seeds", same_seed, lambda s: iter([Case(T=6, B=2), Case(T=6, B=2, started=s.causal)])),
    Law("state size", state_size, lambda s: iter([Case()])),
    Law("backends", backends, _forms),
    Law("sizes", odd_sizes, lambda s: iter([Case(B=2)])),
    Law("half precision", half_precision, lambda s: iter([Case(T=2, B=2), Case(T=20, B=2)])),
)


@dataclass
class Verdict:
    law: str
    kept: bool | None  # None: not declared
    detail: str

    def __str__(self) -> str:
        word = {True: "kept", False: "BROKEN", None: "not declared"}[self.kept]
        return f"  {self.law:15s} {word:12s} {self.detail}".rstrip()


@dataclass
class Report:
    name: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(v.kept is not False for v in self.verdicts)

    def __str__(self) -> str:
        return "\n".join([self.name, *map(str, self.verdicts)])


def check(
    what: "str | type[Mixer] | Mixer | Callable[..., Mixer]",
    *,
    d_model: int = 8,
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32),
    report: Callable[[Verdict], None] | None = None,
) -> Report:
    """Try every law on a mixer, from the smallest case up; `report` is told each verdict as it falls."""
    subject = Subject(what, d_model)
    result = Report(subject.name)
    for law in LAWS:
        verdict = _judge(law, subject, dtypes)
        result.verdicts.append(verdict)
        if report is not None:
            report(verdict)
    return result


def _judge(law: Law, subject: Subject, dtypes: Sequence[torch.dtype]) -> Verdict:
    generator = torch.get_rng_state()
    tried = 0
    try:
        for dtype in dtypes:
            for case in law.cases(subject):
                law.holds(subject, replace(case, dtype=dtype))
                tried += 1
    except Broken as broken:
        return Verdict(law.name, False, str(broken))
    except NotDeclared as reason:
        return Verdict(law.name, None, str(reason))
    except UserError:
        raise
    except Exception as error:  # a user's mixer may fail in any way: say on which case
        return Verdict(law.name, False, f"{case}: {type(error).__name__}: {error}")
    finally:
        torch.set_rng_state(generator)
    return Verdict(law.name, True, f"in {tried} cases")
