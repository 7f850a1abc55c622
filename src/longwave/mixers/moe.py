"""Mixture of experts: a router sends every token to a few of many feed-forward networks, so that size costs no time.

Recurrence:
    p = softmax(R x_t)  or  s(R x_t)        E_t = the top k of p + b, gates g = p over E_t, made to sum to 1
    y_t = scale sum_{e in E_t} g_e f_e(x_t) + f_shared(x_t)

    noisy: p = softmax(h), h = R x_t + n softplus(S x_t), n normal in training, 0 otherwise; in place of the balance
        CV(sum_t g)^2 + CV(sum_t P_t)^2,    P_te = Phi((R_e x_t - kth) / softplus(S_e x_t)),    CV = deviation / mean,
        kth the k-th highest h of the other experts: P_te is how likely another n_e would choose e
    grouped: only experts of the groups whose two best are highest can be chosen; b is a buffer, which `rebalance` moves

Parallel form: tokens sorted by expert, one product an expert; pads are never routed.

Cost: training and a decoded token O(k d d_hidden), whatever the number of experts; state none.

Paper: Shazeer et al. 2017, section 2; noise, importance and load, sections 2.1 and 4 and appendix A; the balance loss,
Fedus et al. 2022, eq. 4; softmax gates, Jiang et al. 2024, section 2.1; shared experts, groups, sigmoid gates and the
bias, DeepSeek-AI 2024 (V3), section 2.1.2, eq. 12 to 16.

Deviations: dropless, unless a capacity is given; then tokens later in the batch are dropped first, in training only.
Shazeer et al. start R at zero; here it tells tokens apart from the beginning.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import UserError, check_divides, check_positive
from longwave.hints import hint
from longwave.mixer import Mixer, ends, valid
from longwave.mixers.ffn import FFN
from longwave.ops.experts import experts
from longwave.record import aux_loss, record
from longwave.state import Empty

Gate = Literal["softmax", "sigmoid", "noisy"]


class MoE(Mixer):
    bias: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        n_experts: int = 8,  # networks to choose from
        top_k: int = 2,  # networks that a token goes through
        d_hidden: int | None = None,  # hidden width of each; None: 8/3 d_model
        kind: Literal["swiglu", "relu"] = "swiglu",  # of the networks
        gate: Gate = "softmax",  # how scores become gates; noisy: softmax, of noise too in training
        normalised: bool = True,  # the gates of the chosen are made to sum to 1, where there are several
        n_shared: int | None = None,  # networks beside them that every token goes through; None: none
        n_groups: int | None = None,  # groups of experts, of which only the best are open to a token; None: one
        top_groups: int | None = None,  # open groups; None: half of them
        scale: float = 1.0,  # of the chosen experts' sum
        balance: float = 0.01,  # weight of the loss that spreads tokens evenly
        capacity: float | None = None,  # most tokens an expert takes in training, as a multiple of an even share
    ) -> None:
        super().__init__()
        hidden = d_hidden or -(-8 * d_model // 3)
        check_positive(n_experts=n_experts, top_k=top_k, capacity=1 if capacity is None else capacity)
        self.n_groups = n_groups or 1
        check_divides("n_groups", self.n_groups, "n_experts", n_experts)
        self.top_groups = top_groups or -(-self.n_groups // 2)
        if self.top_groups > self.n_groups or top_k > self.top_groups * n_experts // self.n_groups:
            raise UserError(f"top_k={top_k} experts cannot be chosen from {n_experts} in {self.n_groups} groups, "
                            f"{self.top_groups} of them open")  # fmt: skip
        if gate == "noisy" and (self.n_groups > 1 or top_k == n_experts):
            raise UserError('gate="noisy" needs more experts than top_k, in one group: how likely each is chosen is '
                            f"asked of all; got {n_experts} in {self.n_groups}, top_k={top_k}")  # fmt: skip
        self.top_k, self.gate, self.scale, self.balance, self.capacity = top_k, gate, scale, balance, capacity
        self.normalised = normalised
        self.couples = ("rows", "times") if capacity is not None else ()  # type: ignore[misc]
        self.router = nn.Parameter(torch.randn(n_experts, d_model) / math.sqrt(d_model))
        self.noise = nn.Parameter(torch.zeros(n_experts, d_model)) if gate == "noisy" else None
        height = 2 * hidden if kind == "swiglu" else hidden
        self.W_in = nn.Parameter(torch.randn(n_experts, height, d_model) / math.sqrt(d_model))
        self.W_out = nn.Parameter(torch.randn(n_experts, d_model, hidden) / math.sqrt(hidden))
        hint(self, "W_out", residual=True)
        self.register_buffer("bias", torch.zeros(n_experts))
        self.shared = FFN(d_model, kind=kind, d_hidden=n_shared * hidden) if n_shared else None

    def forward(
        self, x: Tensor, state: Empty | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Empty | None]:
        real = None if lengths is None or torch.compiler.is_exporting() else valid(x, lengths)  # a graph has one size
        tokens = x.flatten(0, 1) if real is None else x[real]
        chosen, gates = self._route(tokens)
        y = self.scale * experts(tokens, chosen, gates.to(x), self.W_in, self.W_out)
        y = y.view_as(x) if real is None else torch.zeros_like(x).index_put((real,), y)
        if self.shared is not None:
            y = y + self.shared(x)[0]
        return y, None if state is None else Empty(state.n + ends(x, lengths))

    def _route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token, -1 where one is full, and their gates."""
        wide = torch.promote_types(tokens.dtype, torch.float32)
        clean = logits = tokens.to(wide) @ self.router.to(wide).T
        if self.noise is not None:
            spread = F.softplus(tokens.to(wide) @ self.noise.to(wide).T).clamp_min(1e-6)
            logits = clean + torch.randn_like(clean) * spread if self.training else clean
        p = logits.sigmoid() if self.gate == "sigmoid" else logits.softmax(-1)
        score = (p + self.bias.to(wide)).detach()
        if self.n_groups > 1:
            group = score.unflatten(-1, (self.n_groups, -1))
            best = group.topk(min(2, group.shape[-1])).values.sum(-1).topk(self.top_groups).indices
            closed = torch.ones_like(group[..., 0], dtype=torch.bool).scatter(-1, best, False)
            score = group.masked_fill(closed[..., None], -torch.inf).flatten(-2)
        chosen = score.topk(self.top_k).indices
        gates = p.gather(-1, chosen)
        if self.normalised and (self.top_k > 1 or self.gate == "sigmoid"):
            gates = gates / gates.sum(-1, keepdim=True).clamp_min(torch.finfo(wide).tiny)
        hits = torch.zeros_like(p).scatter_(-1, chosen, 1)
        record("load", lambda: hits.sum(0))
        if tokens.shape[0] and self.noise is not None:
            importance = torch.zeros_like(p).scatter(-1, chosen, gates).sum(0)
            aux_loss("importance", self.balance * _unevenness(importance), per_token=False)
            aux_loss("load", lambda: self.balance * _unevenness(self._likely(clean, logits, spread).sum(0)),
                     per_token=False)  # fmt: skip
        elif tokens.shape[0]:
            share = p / p.sum(-1, keepdim=True)
            even = len(p.T) / self.top_k * (hits.mean(0) * share.mean(0)).sum()
            aux_loss("balance", self.balance * even, per_token=False)
        if self.capacity is not None and self.training:
            most = math.ceil(self.capacity * len(tokens) * self.top_k / len(self.bias))
            chosen = chosen.masked_fill(hits.cumsum(0).gather(-1, chosen) > most, -1)
        return chosen, gates

    def _likely(self, clean: Tensor, noisy: Tensor, spread: Tensor) -> Tensor:
        """How likely each expert is among the top k, were its noise drawn again and that of the others not."""
        *_, last, next_best = noisy.topk(self.top_k + 1).values.split(1, -1)
        kth = torch.where(noisy > next_best, next_best, last)
        return torch.special.ndtr((clean - kth) / spread)

    @torch.no_grad()
    def rebalance(self, load: Tensor, rate: float = 1e-3) -> None:
        """Make experts that got fewer tokens than the mean (`load`, as recorded) easier to choose, others harder."""
        self.bias += rate * (load.mean() - load).sign().to(self.bias)


def _unevenness(amounts: Tensor) -> Tensor:
    """The square of the coefficient of variation: 0 where all are alike."""
    return amounts.var(correction=0) / amounts.mean() ** 2
