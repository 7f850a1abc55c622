"""What a HiPPO memory still knows: a smooth signal is read sample by sample, and read back from N numbers at two times.

At each time a measure says how much every moment of the past counts: legt the last theta alike, lagt ever less as it
ages, legs everything alike. The error is weighed the same way. Gu et al. 2020 (HiPPO), section 2.2 and Figure 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longwave.parts.hippo import project, reconstruct
from longwave.probe.picture import pyplot, save

THETA = {"legt": 0.3, "lagt": 0.1, "legs": 1.0}  # of a signal that lasts from 0 to 1
POINTS = 400


@dataclass(frozen=True)
class Memory:
    """What is left of a signal at one moment."""

    measure: str
    moment: float
    time: Float[Tensor, " P"]  # where in the past we look
    weight: Float[Tensor, " P"]  # how much the measure cares
    signal: Float[Tensor, " P"]
    recalled: Float[Tensor, " P"]

    @property
    def error(self) -> float:
        """The root mean square error under the measure, relative to the signal."""
        wrong, right = (self.weight * (self.recalled - self.signal) ** 2).sum(), (self.weight * self.signal**2).sum()
        return float((wrong / right).sqrt())


def smooth(time: Float[Tensor, "*p"]) -> Float[Tensor, "*p"]:
    """A sum of five waves, none faster than seven periods."""
    waves = zip((1.3, 2.9, 4.1, 5.7, 7.0), (0.2, 1.1, 2.7, 4.0, 5.1), strict=True)
    return sum((torch.sin(2 * math.pi * f * time + phase) / math.sqrt(f) for f, phase in waves), torch.zeros_like(time))


def recall(
    measure: str, order: int = 64, steps: int = 2000, moments: Sequence[float] = (0.5, 1.0), method: str = "bilinear"
) -> list[Memory]:
    """Read `smooth` in so many steps and recall it at some moments; a sample stands for the step it lies in."""
    dt, theta = 1 / steps, THETA[measure]
    at = (torch.arange(steps, dtype=torch.float64) + 0.5) * dt
    c = project(smooth(at)[None], measure, order, dt=dt, theta=theta, method=method)[0]
    memories = []
    for moment in moments:
        reach = moment if measure == "legs" else theta  # what an age of 1 is
        oldest = moment if measure != "legt" else min(theta, moment)
        age = (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS * oldest / reach
        weight = torch.exp(-age) if measure == "lagt" else torch.ones_like(age)
        time = moment - age * reach
        recalled = reconstruct(c[round(moment * steps) - 1], measure, age)
        memories.append(Memory(measure, moment, time, weight / reach, smooth(time), recalled))
    return memories


def draw(memories: dict[str, list[Memory]], folder: Path) -> Path:
    """One picture: the measures above, what is recalled under them below, a column each."""
    figure, axes = pyplot().subplots(2, len(memories), figsize=(4 * len(memories), 5), sharex=True, squeeze=False)
    time = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    for (upper, lower), (measure, several) in zip(axes.T, memories.items(), strict=True):
        for memory, colour in zip(several, ("tab:blue", "tab:purple"), strict=False):
            known = memory.weight > 0.01 * memory.weight.max()  # beyond it a polynomial may say anything
            upper.fill_between(memory.time, memory.weight, color=colour, alpha=0.4, label=f"at t = {memory.moment:g}")
            lower.plot(memory.time[known], memory.recalled[known], color=colour, linewidth=2, alpha=0.8)
        lower.plot(time, smooth(time), color="black", linewidth=0.8)
        upper.set_title(f"{measure}: how much the past counts")
        lower.set_title("what is recalled, and the signal")
        upper.legend()
    return save(figure, folder / "hippo.png")
