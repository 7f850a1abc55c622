"""How much of the past reaches the last output: ||dy_T / dx_t|| against the lag T - t.

In a plain RNN the norm falls exponentially with the lag (or grows so), which is what "vanishing gradients" means; in
attention every lag is one step away. Hochreiter 1991; Bengio, Simard and Frasconi 1994; Pascanu, Mikolov and Bengio
2013, section 2.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from longwave.mixer import Mixer
from longwave.models.model import Model
from longwave.probe.picture import pyplot, save


def gradient_by_lag(layer: Mixer | Model, x: Shaped[Tensor, "B T ..."], directions: int = 16) -> Float[Tensor, " T"]:
    """The Frobenius norm of dy_T / dx_t for the lags 0, 1 ... T - 1, its root mean square over the rows of `x`.

    A mixer gets x[B, T, D]; a model what it reads, tokens or frames: y_T is its last hidden state, x_t an embedding.
    With D <= `directions` the norm is exact, else an unbiased estimate of its square from that many random directions.
    """
    if isinstance(layer, Model):
        with torch.no_grad():
            x = layer.embed(x)
        layer = layer.backbone
    was_training = layer.training
    x = x.detach().requires_grad_()
    try:
        y, _ = layer.eval()(x, None if not layer.causal else layer.init_state(len(x)))
    finally:
        layer.train(was_training)
    last = y[:, -1]
    width = last.shape[-1]
    basis, _ = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, device="cpu"))
    squares = torch.zeros(x.shape[:2], dtype=torch.float64)
    for direction in basis[:directions].to(last):
        (g,) = torch.autograd.grad((last * direction).sum(), x, retain_graph=True)
        squares += g.detach().double().cpu().square().sum(-1)
    squares *= width / min(width, directions)
    return squares.mean(0).flip(0).sqrt()


def draw(found: Mapping[str, Float[Tensor, " T"]], path: Path) -> Path:
    """A line for each layer."""
    figure, axes = pyplot().subplots(figsize=(7, 4.5))
    for name, norms in found.items():
        axes.plot(norms.numpy(), label=name)
    axes.set(xlabel="lag", ylabel="norm of the gradient", yscale="log")
    axes.legend()
    return save(figure, path)
