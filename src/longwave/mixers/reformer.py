"""Reformer attention: a token looks up only those that a random hash put into its own bucket, in any of a few rounds.

Recurrence (queries and keys are one vector u; the state is every key, value and bucket so far):
    b_t = argmax(u_t R, -u_t R)        y_t = sum_s softmax_s(u_t . u_s / |u_s|) v_s
    over earlier s of the bucket of t, in the same chunk of it or the one before; t itself only where there is no other;
    R are random rotations, a buffer; with several numbers of buckets, one for each combination of the hashes

    the first `dense` tokens look up all earlier ones

Parallel form: tokens sorted by bucket, attending in chunks (see ops.lsh_attention).

Cost: training O(r T (c + log T) d) for r rounds and chunks of c; a decoded token O(t d); state 2 t d numbers and t r h
buckets for h heads.

Paper: Kitaev et al. 2020, "Reformer: the efficient transformer", section 2 (shared QK, hashing, causal masking, several
rounds, eq. 6). Its reversible layers are residual="reversible" of any model.

Deviations: chunks are counted within each bucket. The paper cuts the sorted sequence, so that tokens to come move the
borders: its answer changes when a text is cut, padded or goes on. The number of buckets is fixed, too; there it grows
with the sequence. Keys found in several rounds count once, as in eq. 6 (common code counts them again). Common code
sees a text of up to a chunk (with one round, two chunks) whole: so does `dense`, and the first tokens of a longer one.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import UserError, check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.lsh_attention import lsh_attention
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.state import State, write_at


class Hashed(State):
    k: Float[Tensor, "B S H K"]
    v: Float[Tensor, "B S H V"]
    bucket: Int[Tensor, "B S H R"]
    n: Int[Tensor, " B"]
    fixed: bool = False

    def snapshot(self) -> "Hashed":
        return self  # written only at positions >= n


class Reformer(Mixer):
    work = "fft"
    growth = "linear"
    rotations: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        d_key: int | None = None,  # width of a head; None: d_model / n_heads
        n_buckets: int | tuple[int, ...] = 8,  # buckets of a round: 1, an even number, or several that are multiplied
        rounds: int = 2,  # hashes, each with a bucket for every token
        chunk: int = 32,  # tokens of a bucket that see one another, and those of the chunk before
        dense: int | None = None,  # so many first tokens see all before them; both ways, a text of so many sees all
        causal: bool = True,  # False: see the whole sequence
    ) -> None:
        super().__init__()
        if d_key is None:
            check_divides("n_heads", n_heads, "d_model", d_model)
        d_key = d_key or d_model // n_heads
        self.buckets = (n_buckets,) if isinstance(n_buckets, int) else tuple(n_buckets)
        check_positive(
            n_buckets=min(self.buckets, default=0), rounds=rounds, chunk=chunk, dense=1 if dense is None else dense
        )
        odd = [n for n in self.buckets if n % 2]
        if odd and self.buckets != (1,):
            raise UserError(f"buckets come in pairs, a direction and its opposite: n_buckets could be {odd[0] + 1}")
        self.n_heads, self.chunk, self.dense, self.causal = n_heads, chunk, dense or 0, causal
        self.uv = Linear(d_model, 2 * n_heads * d_key, bias=False)
        self.out = Linear(n_heads * d_key, d_model, bias=False)
        self.register_buffer("rotations", torch.randn(n_heads, d_key, rounds, sum(self.buckets) // 2))
        hint(self.out, "weight", residual=True)

    def init_state(self, batch: int, capacity: int | None = None) -> Hashed:
        """`capacity`: room for so many tokens, which never grows."""
        H, K, R, _ = self.rotations.shape
        k, v = (self.zeros(batch, capacity or 0, H, K) for _ in "kv")
        bucket = self.zeros(batch, capacity or 0, H, R, dtype=torch.long)
        return Hashed(k, v, bucket, self.zeros(batch, dtype=torch.long), capacity is not None)

    def forward(
        self, x: Tensor, state: Hashed | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hashed | None]:
        u, v = self.uv(x).unflatten(-1, (2, self.n_heads, -1)).unbind(2)
        k, bucket = F.rms_norm(u, u.shape[-1:], eps=1e-6) * u.shape[-1] ** -0.5, self._hash(u.detach())
        if state is None:
            y = lsh_attention(u, k, v, zero_pads(bucket, lengths, fill=-1), self.chunk, None, self.causal)
            if self.dense and self.causal:
                y = self._first(y, u, k, v, torch.zeros(len(x), dtype=torch.long, device=x.device))
            elif self.dense:
                y = self._short(y, u, k, v, lengths)
            return self.out(y.flatten(2)), None
        at = state.n[:, None] + torch.arange(x.shape[1], device=x.device)
        k, v, bucket = (
            write_at(old, at, new, fixed=state.fixed)
            for old, new in ((state.k, k), (state.v, v), (state.bucket, bucket))
        )
        y = lsh_attention(u, k.to(u), v.to(u), bucket, self.chunk, at)
        if self.dense and int(state.n.min()) < self.dense:
            y = self._first(y, u, k.to(u), v.to(u), state.n)
        return self.out(y.flatten(2)), Hashed(k, v, bucket, state.n + ends(x, lengths), state.fixed)

    def _first(self, y: Tensor, u: Tensor, k: Tensor, v: Tensor, n: Int[Tensor, " B"]) -> Tensor:
        """y, and in place of it, for queries at n, n + 1 ... below `dense`, what is seen of all before them."""
        T = min(self.dense, u.shape[1])
        at = n.clamp_max(self.dense)[:, None] + torch.arange(T, device=u.device)
        k, v = k[:, : 2 * self.dense], v[:, : 2 * self.dense]
        whole = lsh_attention(u[:, :T], k, v, _one_bucket(k), 2 * self.dense, at)
        return torch.cat([torch.where((at < self.dense)[..., None, None], whole, y[:, :T]), y[:, T:]], 1)

    def _short(self, y: Tensor, u: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        """y, and in place of it, for rows of at most `dense` tokens, what is seen of all of them."""
        T = u.shape[1]
        n = torch.full((len(u),), T, device=u.device) if lengths is None else lengths
        u, k, v = (x[:, : self.dense] for x in (u, k, v))
        bucket = zero_pads(_one_bucket(k), n.clamp_max(self.dense), fill=-1)
        whole = lsh_attention(u, k, v, bucket, self.dense, None, False)
        short = (n <= self.dense)[:, None, None, None]
        return torch.cat([torch.where(short, whole, y[:, : self.dense]), y[:, self.dense :]], 1)

    def _hash(self, u: Float[Tensor, "B T H K"]) -> Int[Tensor, "B T H R"]:
        turned = torch.einsum("bthk,hkrn->bthrn", u, self.rotations.to(u))
        bucket = torch.zeros(turned.shape[:-1], dtype=torch.long, device=u.device)
        if self.buckets == (1,):
            return bucket
        below = 1
        for n, each in zip(self.buckets, turned.split([n // 2 for n in self.buckets], -1), strict=True):
            bucket = bucket + below * torch.cat([each, -each], -1).argmax(-1)
            below *= n
        return bucket


def _one_bucket(k: Float[Tensor, "B S H K"]) -> Int[Tensor, "B S H 1"]:
    return torch.zeros(*k.shape[:3], 1, dtype=torch.long, device=k.device)
