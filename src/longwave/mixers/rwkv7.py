"""RWKV-7: a matrix state that replaces what it holds under a key, with decay, key and rate of its own in each channel.

Recurrence (a head; x' = x_t + (x_{t-1} - x_t) mu, with a mu for each of r, w, k, v, a, g):
    w = exp(-e^(-1/2) s(f_w x'))    a = s(f_a x')    u = unit(k * c)    k = k (1 + (a - 1) b)    f: two thin matrices
    S_t = S_{t-1} (diag(w) - u^T (a u)) + v^T k
    y_t = W ((norm(S_t r) + (r . (p k)) v) * g)      v: a mix of this layer's and the first layer's value

Parallel form: chunks; inside one, a triangular system (see ops.delta_rule).

Cost: training O(T d^2 / h) in chunks; a decoded token O(d^2); state d^2 / h + d numbers for h heads.

Paper: Peng et al. 2025, "RWKV-7 Goose with expressive dynamic state evolution", section 4, eq. 4-20.

Deviations: `out` starts as the backbone starts it, not at zero; `depth` stands for both of the authors' ratios of depth
(l / L and l / (L - 1)); the norm's epsilon is 1e-5 a channel of a head, which is theirs at 64 channels.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longwave.errors import UserError, check_divides
from longwave.hints import hint
from longwave.mixer import Mixer
from longwave.ops.delta_rule import delta_rule
from longwave.ops.precision import wide
from longwave.ops.ragged import previous
from longwave.parts.linear import Linear
from longwave.parts.norm import HeadNorm, unit
from longwave.state import State


class Board(State):
    last: Float[Tensor, "B D"]
    S: Float[Tensor, "B H K V"]


class Thin(nn.Module):
    """W2 f(W1 x) + bias; W1 starts at zero."""

    def __init__(self, d_model: int, *, width: int, inner: nn.Module, bias: Tensor | None = None) -> None:
        super().__init__()
        self.down, self.inner = Linear(d_model, width, bias=False), inner
        self.up = Linear(width, d_model, bias=bias is not None)
        nn.init.zeros_(self.down.weight)
        nn.init.orthogonal_(self.up.weight, 0.1)
        for layer in (self.down, self.up):
            hint(layer, "weight", own_init=True)
        if bias is not None:
            with torch.no_grad():
                self.up.bias.copy_(bias)
            hint(self.up, "bias", decay=False, own_init=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.inner(self.down(x)))


class RWKV7(Mixer):
    dead: ClassVar = {
        f"mix_value.{name}": "alone it is the first layer: there is no earlier value to mix in"
        for name in ("down.weight", "up.weight", "up.bias")
    }

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads, each with a state of its own
        first: bool = True,  # the first of its kind in a stack: gives its value to the later ones, which take it
        depth: float = 0.0,  # how deep it stands, from 0 to 1: decays and mixing start accordingly
        ranks: tuple[int, ...] | None = None,  # widths of the thin matrices of decay, rate, value and gate
        eps: float = 1e-5,  # of the heads' norm, a channel of a head
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        if n_heads == d_model:
            raise UserError(f"a key of one channel has no direction: n_heads must be below d_model, got {n_heads}")
        self.n_heads, self.eps = n_heads, eps
        self.gives, self.takes = (("rwkv7 value",), ()) if first else ((), ("rwkv7 value",))
        d, shallow, channel = d_model, 1 - depth, torch.arange(d_model)
        start = (channel / d)[None] ** (torch.tensor([[0.2], [0.9], [0.9], [0.4], [0.9], [0.2]]) * shallow)
        start = 1 - start - depth * torch.tensor([[0], [0], [0.4], [0.6], [0], [0]])
        self.mu = nn.Parameter(start)
        root = math.sqrt(d)
        if ranks is None:
            ranks = tuple(max(32, 32 * round(r / 32)) for r in (1.8 * root, 1.8 * root, 1.3 * root, 0.6 * d**0.8))
        if len(ranks) != 4 or min(ranks) < 1:
            raise UserError(f"ranks must be four widths (of decay, rate, value and gate), got {ranks}")
        speed = -6.5 + 5 * (channel / max(1, d - 1)) ** (0.85 + depth**0.5)
        self.decay = Thin(d, width=ranks[0], inner=nn.Tanh(), bias=speed)
        self.rate = Thin(d, width=ranks[1], inner=nn.Identity(), bias=torch.zeros(d))
        self.mix_value = None if first else Thin(d, width=ranks[2], inner=nn.Identity(), bias=torch.ones(d))
        self.gate = Thin(d, width=ranks[3], inner=nn.Sigmoid())
        self.removed = nn.Parameter(torch.full((d,), 0.85))
        self.slowed = nn.Parameter(torch.ones(d))
        self.bonus = nn.Parameter(torch.zeros(n_heads, d // n_heads))
        self.r, self.k, self.v, self.out = (Linear(d, d, bias=False) for _ in range(4))
        for layer, bound in ((self.r, 0.5), (self.k, 0.05), (self.v, 0.5)):
            nn.init.uniform_(layer.weight, -bound / root, bound / root)
            hint(layer, "weight", own_init=True)
        self.norm = HeadNorm(n_heads, d // n_heads, eps=eps * (d // n_heads))
        hint(self, "mu", decay=False, own_init=True)
        hint(self, "bonus", decay=False)
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int) -> Board:
        H, K = self.bonus.shape
        return Board(self.zeros(batch, H * K), self.zeros(batch, H, K, K, wide=True))

    def forward(
        self, x: Tensor, state: Board | None = None, lengths: Tensor | None = None,
        handed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Board | None]:  # fmt: skip
        before, last = previous(x, None if state is None else state.last, lengths)
        xr, xw, xk, xv, xa, xg = (torch.addcmul(x, before - x, mu) for mu in self.mu)
        r, k, v, a = (
            self.r(xr),
            self.k(xk),
            self._value(xv, {} if handed is None else handed),
            torch.sigmoid(self.rate(xa)),
        )
        log_decay = -math.exp(-0.5) * torch.sigmoid(wide(self.decay(xw)))
        removed, k = k * self.removed, k * (1 + (a - 1) * self.slowed)
        r, k, v, a, removed, log_decay = (t.unflatten(-1, (self.n_heads, -1)) for t in (r, k, v, a, removed, log_decay))
        u = unit(removed, 1e-24)
        y, S = delta_rule(r, k, v, u, -u * a, log_decay, None if state is None else state.S, lengths)
        y = self.norm(y) + (r * k * self.bonus).sum(-1, keepdim=True) * v
        y = self.out(y.flatten(2) * self.gate(xg))
        return y, None if last is None or S is None else Board(last, S)

    def _value(self, x: Tensor, handed: dict[str, Tensor]) -> Tensor:
        v = self.v(x)
        if self.mix_value is None:
            handed["rwkv7 value"] = v
        elif "rwkv7 value" in handed:
            v = torch.lerp(v, handed["rwkv7 value"], torch.sigmoid(self.mix_value(x)))
        return v
