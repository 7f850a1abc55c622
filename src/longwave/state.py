"""What a mixer remembers between two pieces of a sequence.

A state is a frozen, batch-first bag of real tensors, declared in the mixer's own file:

    class Cell(State):
        h: Float[Tensor, "B D"]
        c: Float[Tensor, "B D"]

Fields are tensors, other states, tuples of these, or None; a field annotated `int`, `bool`, `float` or `str` is a plain
value that all rows share. A complex number is a last axis of 2. Every subclass is a pytree, so a state goes through
`torch.compile`, `torch.export` and autograd functions like a tuple of tensors.

A state is used once: pass it on, or `clone()` it first. Its buffers may then be written in place (`write_at`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from jaxtyping import Bool, Int
from torch import Tensor

from longwave.errors import UserError
from longwave.files import read_tensors, write_tensors

PLAIN = (int, bool, float, str)
AnyState = TypeVar("AnyState", bound="State")


@dataclass_transform(frozen_default=True)
class State:
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        shared = [f.name for f in fields if f.type in PLAIN]
        held = [f.name for f in fields if f.type not in PLAIN]

        def flatten(state: State) -> tuple[list[Any], tuple[Any, ...]]:
            return [getattr(state, name) for name in held], tuple(getattr(state, name) for name in shared)

        def flatten_with_keys(state: State) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
            values, context = flatten(state)
            return [(pytree.GetAttrKey(name), value) for name, value in zip(held, values, strict=True)], context

        def unflatten(values: Any, context: tuple[Any, ...]) -> State:
            return cls(**dict(zip(held, values, strict=True)), **dict(zip(shared, context, strict=True)))

        name = f"{cls.__module__}.{cls.__qualname__}"
        pytree.register_pytree_node(
            cls, flatten, unflatten, serialized_type_name=name, flatten_with_keys_fn=flatten_with_keys
        )

    def map(self: AnyState, f: Callable[..., Tensor], *others: "State") -> AnyState:
        """`f` on every tensor (and on the ones in the same place of `others`); parts that are None stay None."""
        return pytree.tree_map(lambda t, *rest: None if t is None else f(t, *rest), self, *others)

    def leaves(self) -> list[Tensor]:
        return [t for t in pytree.tree_leaves(self) if t is not None]

    def rows(self: AnyState, index: Int[Tensor, " R"] | Bool[Tensor, " B"] | Sequence[int]) -> AnyState:
        """The rows at `index`, always as a copy: reorder beams, drop finished requests, repeat a prompt."""
        at = torch.as_tensor(index)
        return self.map(lambda t: t[at.to(t.device)])

    @staticmethod
    def cat(states: Sequence[AnyState]) -> AnyState:
        """One batch of all rows. Where capacities differ, the smaller buffers are padded with zeros."""
        return states[0].map(lambda *same: torch.cat(_padded_alike(same)), *states[1:])

    @staticmethod
    def where(keep: Bool[Tensor, " B"], a: AnyState, b: AnyState) -> AnyState:
        """Row by row: a's where `keep`, else b's."""
        return a.map(lambda s, t: torch.where(keep.view(-1, *[1] * (s.ndim - 1)), s, t), b)

    def clone(self: AnyState) -> AnyState:
        return self.map(torch.clone)

    def detach(self: AnyState) -> AnyState:
        return self.map(Tensor.detach)

    def snapshot(self: AnyState) -> AnyState:
        """A state that stays readable while its successors are computed, as cheaply as the class allows.

        A copy, unless the class knows better: an append-only buffer, written only beyond what it holds, returns itself.
        """
        copies = {f.name: _snapshot(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return type(self)(**copies)

    def to(self: AnyState, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> AnyState:
        """Move; `dtype` is for the floating parts, counters stay integers."""
        return self.map(lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else None))

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.leaves())

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        paths, structure = pytree.tree_flatten_with_path(self)
        tensors = {pytree.keystr(key): t.detach().cpu().clone() for key, t in paths if t is not None}
        write_tensors(path, tensors, {"kind": "state", "structure": pytree.treespec_dumps(structure)})

    @staticmethod
    def load(path: str | Path, like: AnyState) -> AnyState:
        """Read what `save` wrote into the form of `like` (`model.init_state(1)`); sizes come from the file."""
        tensors, about = read_tensors(path, kind="state")
        paths, structure = pytree.tree_flatten_with_path(like)
        if about.get("structure") != pytree.treespec_dumps(structure):
            raise UserError(f"{path} holds the state of another model")
        values = []
        for key, t in paths:
            found = tensors.pop(pytree.keystr(key), None)
            if found is not None and t is not None:
                found = found.to(t.device)
            if found is not None and t is not None and (found.dtype != t.dtype or found.ndim != t.ndim):
                raise UserError(f"{path} holds the state of another model: {pytree.keystr(key)} is {found.dtype} with "
                                f"{found.ndim} axes, expected {t.dtype} with {t.ndim}")  # fmt: skip
            values.append(found)
        return pytree.tree_unflatten(values, structure)


class Empty(State):
    """Nothing but how many tokens each row has seen."""

    n: Int[Tensor, " B"]


class Parts(State):
    """The states of the parts of a container; None beside others where a part starts from the beginning."""

    parts: tuple[State | None, ...]


def may_write(*buffers: Tensor) -> bool:
    """Whether a state may be written in place: nobody differentiates through it, and no graph is being exported."""
    return not (torch.is_grad_enabled() or torch.compiler.is_exporting() or any(b.requires_grad for b in buffers))


def write_at(buffer: Tensor, at: Int[Tensor, "B T"], value: Tensor, *, fixed: bool) -> Tensor:
    """buffer[b, at[b, t]] = value[b, t]: in place where allowed, else a differentiable copy.

    Unless its capacity is `fixed`, the buffer grows by doubling, which is the only place where the host waits.
    """
    value = value.to(buffer.dtype)
    if not fixed:
        need, capacity = int(at.max()) + 1, buffer.shape[1]
        if need > capacity:
            more = max(need, 2 * capacity, 8) - capacity
            buffer = F.pad(buffer, [0, 0] * (buffer.ndim - 2) + [0, more])
    where = (torch.arange(buffer.shape[0], device=buffer.device)[:, None].expand_as(at), at)
    return buffer.index_put_(where, value) if may_write(buffer, value) else buffer.index_put(where, value)


def _snapshot(part: Any) -> Any:
    if isinstance(part, State):
        return part.snapshot()
    if isinstance(part, tuple):
        return tuple(_snapshot(each) for each in part)
    return part.clone() if isinstance(part, Tensor) else part


def _padded_alike(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    largest = [max(sizes) for sizes in zip(*(t.shape[1:] for t in tensors), strict=True)]
    lacking = [[big - size for big, size in zip(largest, t.shape[1:], strict=True)] for t in tensors]
    pads = [[side for more in reversed(each) for side in (0, more)] for each in lacking]
    return [F.pad(t, pad) if any(pad) else t for t, pad in zip(tensors, pads, strict=True)]
