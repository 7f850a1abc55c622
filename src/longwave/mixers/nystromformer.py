"""Nystromformer: attention through a few landmarks, means of segments of the queries and of the keys.

Recurrence: none; every output needs the whole sequence.

Parallel form (q~ and k~ are the landmarks, + a pseudo-inverse found by iteration):
    Y = softmax(Q k~^T) softmax(q~ k~^T)^+ softmax(q~ K^T) V + D V        Q, K divided by d^(1/4); D a convolution

Cost: training O(T m d + m^3) for m landmarks; no decoding, no state.

Paper: Xiong et al. 2021, "Nystromformer: a Nystrom-based algorithm for approximating self-attention", section 3.2
(landmarks, the iteration) and fig. 2 (the convolution, one filter a head).

Deviations: any length: a row of n tokens has min(m, n) segments, equal but for rounding, of its own tokens alone (the
published code demands that m divides the length, and averages pads in). By default the iteration starts from each
matrix's own norm (the code's "exact" start; its default takes the largest of the batch, which couples rows: of these
"row" takes the largest of a row's heads).
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from longwave.errors import check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends
from longwave.ops.attention import Pattern, attention
from longwave.ops.precision import wide
from longwave.ops.ragged import zero_pads
from longwave.ops.short_conv import short_conv
from longwave.parts.linear import Linear


class Nystromformer(Mixer):
    causal = False

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int = 4,  # heads
        landmarks: int | None = 64,  # segments, each the mean of its tokens; None: a token each, attention itself
        iterations: int = 6,  # towards the pseudo-inverse
        start: Literal["matrix", "row"] = "matrix",  # whose norm that starts from: its own, the largest of the heads'
        taps: int | None = 33,  # of the convolution beside; None: no convolution
        bias: bool = False,  # biases in the projections
    ) -> None:
        super().__init__()
        check_divides("n_heads", n_heads, "d_model", d_model)
        check_positive(landmarks=1 if landmarks is None else landmarks, iterations=iterations, taps=taps or 1)
        self.n_heads, self.landmarks, self.iterations, self.start = n_heads, landmarks, iterations, start
        self.qkv = Linear(d_model, 3 * d_model, bias=bias)
        self.out = Linear(d_model, d_model, bias=bias)
        hint(self.out, "weight", residual=True)
        self.beside = None
        if taps is not None:
            bound = 1 / math.sqrt(taps)
            self.beside = nn.Parameter(torch.empty(n_heads, taps).uniform_(-bound, bound))
            hint(self, "beside", own_init=True)

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        q, k, v = wide(self.qkv(x)).unflatten(-1, (3, self.n_heads, -1)).unbind(2)
        q, k, v = q * q.shape[-1] ** -0.25, zero_pads(k * k.shape[-1] ** -0.25, lengths), zero_pads(v, lengths)
        n = torch.as_tensor(ends(x, lengths), device=x.device).expand(len(x))
        token = torch.arange(x.shape[1], device=x.device)
        seen = torch.where(token < n[:, None], token, -1)
        if self.landmarks is None:
            y = attention(q, k, v, Pattern(causal=False), k_pos=seen, scale=1.0)
        else:
            y = self._through_landmarks(zero_pads(q, lengths), k, v, n, seen, self.landmarks)
        y = y.flatten(2)
        if self.beside is not None:
            ahead = self.beside.shape[1] // 2
            filters = self.beside.repeat_interleave(v.shape[-1], 0).to(v)
            y = y + short_conv(F.pad(v.flatten(2), (0, 0, 0, ahead)), filters)[0][:, ahead:]
        return self.out(y.to(x.dtype)), None

    def _through_landmarks(self, q: Tensor, k: Tensor, v: Tensor, n: Tensor, seen: Tensor, most: int) -> Tensor:
        count, mark = n.clamp_max(most), torch.arange(most, device=n.device)
        q_marks, k_marks = (segment_means(each, n, count, most) for each in (q, k))
        real = mark < count[:, None]
        gathered = attention(q_marks, k, v, Pattern(causal=False), k_pos=seen, scale=1.0)
        inverse = pseudo_inverse(_weights(q_marks, k_marks, real), self.iterations, self.start == "row")
        values = torch.einsum("bhij,bjhv->bihv", inverse, gathered)
        return attention(q, k_marks, values, Pattern(causal=False), k_pos=torch.where(real, mark, -1), scale=1.0)


def segment_means(x: Float[Tensor, "B T H K"], n: Tensor, count: Tensor, most: int) -> Float[Tensor, "B M H K"]:
    """The means of `count` segments of each row's first n tokens; segment i begins at token floor(i n / count)."""
    token = torch.arange(x.shape[1], device=x.device)
    segment = ((token + 1) * count[:, None] - 1) // n[:, None].clamp_min(1)
    segment = segment.clamp(0, most - 1)  # pads, which are zero
    sums = x.new_zeros(len(x), most, *x.shape[2:])
    sums = sums.scatter_add(1, segment[:, :, None, None].expand_as(x), x)
    mark = torch.arange(most + 1, device=x.device)
    starts = mark * n[:, None] // count[:, None].clamp_min(1)
    return sums / (starts[:, 1:] - starts[:, :-1]).clamp_min(1)[:, :, None, None]


def pseudo_inverse(A: Float[Tensor, "*n M M"], iterations: int, shared: bool = False) -> Float[Tensor, "*n M M"]:
    """The iteration of Razavi et al. 2014, for a matrix whose rows sum to 1 (or to 0, with their columns).

    `shared`: its start is divided by the largest norm of the matrices along the axis before.
    """
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    norm = A.sum(-2).amax(-1, keepdim=True)
    norm = norm.amax(-2, keepdim=True) if shared else norm
    Z = A.mT / norm[..., None].clamp_min(torch.finfo(A.dtype).tiny)
    for _ in range(iterations):
        AZ = A @ Z
        Z = 0.25 * Z @ (13 * eye - AZ @ (15 * eye - AZ @ (7 * eye - AZ)))
    return Z


def _weights(q: Tensor, k: Tensor, real: Bool[Tensor, "B M"]) -> Float[Tensor, "B H M M"]:
    scores = torch.einsum("bihk,bjhk->bhij", q, k)
    pairs = (real[:, :, None] & real[:, None])[:, None]
    return scores.masked_fill(~pairs, torch.finfo(scores.dtype).min).softmax(-1) * pairs
