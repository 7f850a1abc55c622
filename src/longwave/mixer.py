"""The one law.

A mixer maps `(x, state) -> (y, state)`. However a sequence is cut, passing the state from piece to piece gives what one
call on the whole gives: outputs, final state and gradients.

    y, _     = mixer(x)                             training: from the beginning, no state wanted
    y, state = mixer(x, mixer.init_state(batch))    prefill: a state comes back
    y, state = mixer(x[:, :1], state)               decoding: one token
    y, state = mixer(x, state, lengths)             ragged rows, padded on the right

One token or many, with a state or without, it is the same `forward`. `state=None` means the beginning and returns
None, so that a training kernel need not produce a final state. A row of length 0 keeps its state; outputs at pads are
unspecified.

What a class cannot do, it declares:

    causal      False: it sees the whole sequence at once; it has no state and cannot be cut
    continuous  True: it takes `dt`, the time since the previous sample in units of the training step
    growth      how its state grows with the tokens seen: "constant", "window", "log" or "linear"
    work        how time grows with the length of a sequence: "linear", "fft" (a logarithm more), "quadratic", or "loop"
                (linear, but every step goes through Python)
    couples     in training mode a row or a time step depends on others (batch norm, expert capacity): "rows", "times"
    dead        parameters whose gradient is zero by nature, with the reason (a softmax does not see a key bias)
    gives       names of tensors [B, T, ...] that it writes into `handed`, for later layers (RWKV-7's first value)
    takes       names of those it reads there; alone, without `handed`, it does without
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longwave.errors import UserError
from longwave.hints import hints
from longwave.state import Empty, State

HALF = (torch.bfloat16, torch.float16)


class Mixer(nn.Module):
    causal: bool = True
    continuous: bool = False
    growth: str = "constant"
    work: str = "linear"
    couples: ClassVar[tuple[str, ...]] = ()
    dead: ClassVar[Mapping[str, str]] = {}
    gives: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    def init_state(self, batch: int) -> State:
        """The state before the first token. This one is for a mixer that remembers nothing."""
        return Empty(self.zeros(batch, dtype=torch.long))

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(
        self,
        x: Float[Tensor, "B T D"],
        state: Any = None,
        lengths: Int[Tensor, " B"] | None = None,
        dt: float | Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Any]:
        """The door: checks what comes in, replaces pads by zeros, and gives back no state where none was given."""
        self._check(x, state, lengths, dt)
        if lengths is not None:
            real = valid(x, lengths)
            x = torch.where(real[..., None], x, 0)  # not *: a NaN in a pad would reach weights as 0 * NaN
            if isinstance(dt, Tensor) and dt.ndim == 2:
                dt = torch.where(real, dt, 0)  # in a pad no time passes
        more: dict[str, Any] = {} if dt is None else {"dt": dt}
        if handed is not None and (self.gives or self.takes):
            more["handed"] = handed
        y, new = super().__call__(x, state, lengths, **more)
        return y, None if state is None else new

    def _check(self, x: Tensor, state: Any, lengths: Tensor | None, dt: float | Tensor | None) -> None:
        name = type(self).__name__
        if x.ndim != 3 or x.shape[1] < 1:
            raise UserError(f"{name} takes x of shape [batch, time >= 1, width], got {list(x.shape)}")
        if state is not None and not self.causal:
            raise UserError(f"{name} sees the whole sequence at once: it has no state and cannot be cut")
        if dt is not None and not self.continuous:
            raise UserError(f"{name} has no notion of time: dt is for continuous mixers")
        if lengths is None or torch.compiler.is_compiling() or not lengths.is_cpu:
            return
        if lengths.shape != x.shape[:1] or not bool(((lengths >= 0) & (lengths <= x.shape[1])).all()):
            raise UserError(f"lengths must be {len(x)} numbers from 0 to {x.shape[1]}, got {lengths.tolist()}")

    def zeros(self, *shape: int, dtype: torch.dtype | None = None, wide: bool = False) -> Tensor:
        """Zeros where this mixer's parameters are, for a state; `wide` for sums over time, kept in at least float32."""
        like = next(self.parameters(), torch.empty(0))
        kind = dtype or (torch.promote_types(like.dtype, torch.float32) if wide else like.dtype)
        return torch.zeros(shape, device=like.device, dtype=kind)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Mixer":
        """Every `.to()`, `.half()`, `.cuda()` comes through here: what is hinted float32 does not become half."""
        kept = {id(p) for _, p, wish in hints(self) if wish.float32}

        def keeping(t: Tensor) -> Tensor:
            moved = fn(t)
            return t.to(moved.device, torch.float32) if id(t) in kept and moved.dtype in HALF else moved

        return super()._apply(keeping, recurse)


def valid(x: Tensor, lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B T"]:
    """Which tokens are real."""
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def ends(x: Tensor, lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " B"] | int:
    """How many tokens of this piece each row has."""
    return x.shape[1] if lengths is None else lengths


def reverse(x: Tensor, lengths: Int[Tensor, " B"] | None, shift: int = 0) -> Tensor:
    """Each row of x[B, T, ...] backwards, by its own length; pads stay behind it.

    `shift=1` is for `dt`: read backwards, the gap before a sample is the one that followed it (the first keeps its
    own).
    """
    time = torch.arange(x.shape[1], device=x.device)
    end = torch.full_like(time[:1], x.shape[1]) if lengths is None else lengths[:, None]
    at = end - 1 + shift - time
    at = torch.where(time < end, torch.where(at == end, 0, at), time).expand(len(x), -1)
    return x.gather(1, at.view(*at.shape, *[1] * (x.ndim - 2)).expand_as(x))


class Bidirectional(Mixer):
    """Two causal mixers, one reading backwards: a token sees its past through one and its future through the other.

    The backward one gets each row reversed by its own length, so padding stays behind it, and `dt` reversed by one.
    """

    causal = False

    def __init__(self, ahead: Mixer, back: Mixer) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back
        self.continuous = ahead.continuous or back.continuous

    def forward(
        self, x: Tensor, state: None = None, lengths: Tensor | None = None, dt: float | Tensor | None = None
    ) -> tuple[Tensor, None]:
        return self.each_way(lambda one, *given: one(*given)[0], x, lengths, dt), None

    def each_way(
        self, read: Callable[..., Tensor], x: Tensor, lengths: Tensor | None, dt: float | Tensor | None
    ) -> Tensor:
        """With `read(mixer, x, state, lengths, dt)` for each of the two."""
        dt_back = reverse(dt, lengths, shift=1) if isinstance(dt, Tensor) and dt.ndim == 2 else dt
        ahead = read(self.ahead, x, None, lengths, dt if self.ahead.continuous else None)
        back = read(self.back, reverse(x, lengths), None, lengths, dt_back if self.back.continuous else None)
        return ahead + reverse(back, lengths)
