"""The poles that diagonal state spaces start from: what is left of the HiPPO-LegS matrix when it is made diagonal.

    lin    -1/2 + i pi n                         an inverse Fourier basis of the window
    inv    -1/2 + i N/pi (N / (2n + 1) - 1)      closer to LegS, its fastest poles faster
    real   -(n + 1)                              no oscillation

Only one of each conjugate pair is kept; n counts these. Gu et al. 2022 (S4D), eq. 9 and 10.
"""

import math

import torch
from jaxtyping import Complex
from torch import Tensor

from longwave.errors import choose


def diagonal_poles(kind: str, n_pairs: int) -> Complex[Tensor, " N"]:
    n = torch.arange(n_pairs, dtype=torch.float64)
    N = 2 * n_pairs
    table = {
        "lin": lambda: torch.complex(torch.full_like(n, -0.5), math.pi * n),
        "inv": lambda: torch.complex(torch.full_like(n, -0.5), N / math.pi * (N / (2 * n + 1) - 1)),
        "real": lambda: torch.complex(-(n + 1), torch.zeros_like(n)),
    }
    return choose("poles", kind, table)()
