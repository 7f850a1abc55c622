"""What attention is, checked: blind to order, sharpened by temperature, an average of what it looks at.

Vaswani et al. 2017, sections 3.2 and 3.5. Attention without positions gives every token what it gave before, however
the tokens are shuffled. Scores divided by a temperature keep their order; the entropy of the weights grows with it.
The weights are positive and sum to one, so an output lies in the convex hull of the values; beside a residual stream
the coefficients sum to two, and it need not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longwave import mixers
from longwave.errors import UserError, check_positive
from longwave.mixer import Mixer
from longwave.record import recording


def order_blindness(layer: Mixer, x: Float[Tensor, "B T D"], shuffles: int = 8) -> float:
    """The largest difference of f(shuffled x) from the shuffled f(x), relative to f's largest value: 0 is blind."""
    if layer.causal:
        raise UserError(f"{type(layer).__name__} is causal: what it sees depends on order by its nature")
    was_training = layer.training
    try:
        with torch.no_grad():
            y = layer.eval()(x)[0]
            orders = [torch.randperm(x.shape[1], device=x.device) for _ in range(shuffles)]
            apart = max(float((layer(x[:, order])[0] - y[:, order]).abs().max()) for order in orders)
    finally:
        layer.train(was_training)
    return apart / float(y.abs().max())


@dataclass(frozen=True)
class Sharpness:
    temperature: float
    entropy: Float[Tensor, " draws"]  # of the weights of each draw, in nats, the mean over its queries
    same_order: bool  # whether the keys, sorted by weight, are in the same order as at the first temperature


def entropy_by_temperature(temperatures: Sequence[float], draws: int = 100, tokens: int = 16) -> list[Sharpness]:
    """The weights of one attention layer over random inputs, at each temperature."""
    check_positive(draws=draws, tokens=tokens)
    x = torch.randn(draws, tokens, 8, dtype=torch.float64)
    weights = mixers.create("attention", 8, n_heads=1, causal=False, position="none").double().state_dict()
    found: list[Sharpness] = []
    first = None
    for temperature in temperatures:
        layer = mixers.create("attention", 8, n_heads=1, causal=False, position="none", temperature=temperature)
        layer = layer.double()
        layer.load_state_dict(weights)
        with torch.no_grad(), recording() as seen:
            layer(x)
        w = seen["weights"]
        order = w.argsort(-1)
        first = order if first is None else first
        entropy = -torch.xlogy(w, w).sum(-1).mean((1, 2))
        found.append(Sharpness(temperature, entropy, bool((order == first).all())))
    return found


def hull_distance(y: Float[Tensor, "T V"], values: Float[Tensor, "S V"]) -> Float[Tensor, " T"]:
    """How far each y lies from the convex hull of the values, in its farthest coordinate: a linear program each.

    Least t with |sum_s a_s v_s - y| <= t, a_s >= 0 and sum_s a_s = 1.
    """
    try:
        from scipy.optimize import linprog
    except ImportError as missing:
        raise UserError("the linear program needs scipy: pip install 'longwave[probe]'") from missing
    v = values.detach().double().cpu().T
    slack = torch.ones(len(v), 1, dtype=v.dtype)
    above, below = torch.cat([v, -slack], 1), torch.cat([-v, -slack], 1)
    upper = torch.cat([above, below]).numpy()
    cost = [0.0] * v.shape[1] + [1.0]
    sums = [[1.0] * v.shape[1] + [0.0]]
    found = []
    for each in y.detach().double().cpu():
        solved = linprog(cost, A_ub=upper, b_ub=torch.cat([each, -each]).numpy(), A_eq=sums, b_eq=[1.0])
        found.append(solved.fun)
    return torch.tensor(found, dtype=torch.float64)
