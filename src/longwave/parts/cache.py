"""Keys and values kept for attention: all of them, or those of a window.

`extend` takes in a piece and tells what its queries look at:

    new, k, v, at, aligned = state.extend(k, v, lengths)

the keys and values, the position of each (negative: nobody's), and whether the last ones are the piece's own, in order.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.mixer import ends
from longwave.state import State, may_write, write_at


class KV(State):
    """All keys and values so far, in buffers that grow by doubling, or of fixed capacity."""

    k: Float[Tensor, "B S G K"]
    v: Float[Tensor, "B S G V"]
    n: Int[Tensor, " B"]
    fixed: bool = False

    def snapshot(self) -> "KV":
        return self  # written only at positions >= n

    def extend(
        self, k: Float[Tensor, "B T G K"], v: Float[Tensor, "B T G V"], lengths: Int[Tensor, " B"] | None
    ) -> tuple["KV", Tensor, Tensor, Tensor, bool]:
        pos = self.n[:, None] + torch.arange(k.shape[1], device=k.device)
        keys, values = write_at(self.k, pos, k, fixed=self.fixed), write_at(self.v, pos, v, fixed=self.fixed)
        at = torch.arange(keys.shape[1], device=k.device)[None]
        return KV(keys, values, self.n + ends(k, lengths), self.fixed), keys, values, at, False


class Ring(State):
    """The keys and values of the last W tokens; position p lies in slot p mod W."""

    k: Float[Tensor, "B W G K"]
    v: Float[Tensor, "B W G V"]
    n: Int[Tensor, " B"]

    def extend(
        self, k: Float[Tensor, "B T G K"], v: Float[Tensor, "B T G V"], lengths: Int[Tensor, " B"] | None
    ) -> tuple["Ring", Tensor, Tensor, Tensor, bool]:
        W, T, n = self.k.shape[1], k.shape[1], self.n + ends(k, lengths)
        slot = torch.arange(W, device=k.device)
        if T == 1 and may_write(self.k, k):
            rows = torch.nonzero(n > self.n)[:, 0]
            self.k[rows, self.n[rows] % W] = k[rows, 0].to(self.k)
            self.v[rows, self.n[rows] % W] = v[rows, 0].to(self.v)
            return Ring(self.k, self.v, n), self.k, self.v, _held(slot, torch.maximum(n, self.n + 1), W), False
        order = self.n[:, None] + slot  # the ring's positions from the oldest on are order - W
        past = [each.gather(1, (order % W)[..., None, None].expand_as(each)) for each in (self.k, self.v)]
        k, v = torch.cat([past[0], k.to(self.k)], 1), torch.cat([past[1], v.to(self.v)], 1)
        at = torch.cat([order - W, self.n[:, None] + torch.arange(T, device=k.device)], 1)
        index = (_held(slot, n, W) - self.n[:, None] + W).clamp_min(0)[..., None, None]
        kept_k, kept_v = (each.gather(1, index.expand(-1, -1, *each.shape[2:])) for each in (k, v))
        return Ring(kept_k, kept_v, n), k, v, at, True


def _held(slot: Tensor, n: Tensor, W: int) -> Tensor:
    """The position in each slot after n tokens: the last before n that is congruent to it; negative where none is."""
    return n[:, None] - 1 - (n[:, None] - 1 - slot) % W
