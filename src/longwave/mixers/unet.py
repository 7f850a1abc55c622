"""A U-Net over time: mixers at ever coarser steps and back again, each scale handed across to where it is made finer.

Recurrence: none; a coarse step sees what follows within it.

Parallel form (going down, l = 0 ... n - 1, then up again; f and g are mixers with a norm before and a sum around them):
    u_l = f_l(x_l)        x_{l+1} = W_l [u_l at pool steps], wider by `expand`        x_n = f_n(x_n)
    x_l = g_l(V_l x_{l+1}, a step for each that was pooled, + u_l)

Cost: that of the mixer at each scale, T, T / pool, ... steps; no decoding, no state.

Paper: Ronneberger et al. 2015, "U-Net", section 2; over time with state spaces between the poolings, Goel et al. 2022,
"It's Raw!", section 3.2 and figure 1.

Deviations: what is handed across is added, as in Goel et al., not concatenated. A length that pooling does not divide
is followed by zeros, in each row behind its own end, which are cut off on the way up.
"""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.mixer import Mixer
from longwave.mixers import create
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.spec import Spec


class Scale(nn.Module):
    """x + mixer(norm(x)); a causal mixer reads both ways."""

    def __init__(self, d_model: int, mixer: Spec | str) -> None:
        super().__init__()
        made = create(mixer, d_model)
        self.mixer = create("bidirectional", d_model, mixer=mixer) if made.causal else made
        self.norm = make_norm("layer", d_model)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return zero_pads(x + self.mixer(self.norm(x), None, lengths)[0], lengths)


class UNet(Mixer):
    causal = False

    def __init__(
        self,
        d_model: int,
        *,
        mixer: Spec | str = "s4d",  # at every scale
        n_levels: int = 2,  # poolings
        pool: int = 2,  # steps that become one
        expand: int = 2,  # how much wider that one is
    ) -> None:
        super().__init__()
        check_positive(n_levels=n_levels, pool=pool, expand=expand)
        self.pool = pool
        widths = [d_model * expand**level for level in range(n_levels + 1)]
        self.before = nn.ModuleList(Scale(width, mixer) for width in widths)
        self.after = nn.ModuleList(Scale(width, mixer) for width in widths[:-1])
        steps = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(Linear(pool * fine, coarse) for fine, coarse in steps)
        self.up = nn.ModuleList(Linear(coarse, pool * fine) for fine, coarse in steps)

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        across = []
        for before, down in zip(self.before, self.down, strict=False):
            u = before(x, lengths)
            across.append((u, lengths))
            filled = F.pad(u, (0, 0, 0, -u.shape[1] % self.pool))
            x = down(filled.unflatten(1, (-1, self.pool)).flatten(2))
            lengths = None if lengths is None else -(-lengths // self.pool)
        x = self.before[-1](x, lengths)
        for after, up, (u, lengths) in zip(
            reversed(self.after), reversed(self.up), reversed(across), strict=True
        ):  # fmt: skip
            x = after(up(x).unflatten(2, (self.pool, -1)).flatten(1, 2)[:, : u.shape[1]] + u, lengths)
        return x, None
