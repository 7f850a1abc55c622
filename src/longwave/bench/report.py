"""What was measured: a table for people, JSON for machines, and whether a target was missed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from longwave.bench.race import Ratio, ratio
from longwave.files import write_whole
from longwave.probe.picture import pyplot, save

NOISE = 0.85  # a target is missed where the whole interval lies below so much of it


@dataclass(frozen=True)
class Measured:
    what: str
    shape: str
    seconds: float  # ours, the median
    peer: str = ""  # the fastest
    ratio: Ratio | None = None  # how many times as long it takes
    target: float | None = None
    bound: str = ""  # what of the machine limits it
    reached: Ratio | None = None  # which share of that
    share: float | None = None  # that was meant to be reached

    @staticmethod
    def of(
        what: str,
        shape: str,
        times: Mapping[str, Sequence[float]],
        *,
        target: float | None = None,
        limit: tuple[str, float] | None = None,  # its name, and the seconds that it would take at the limit
        share: float | None = None,
    ) -> "Measured":
        ours = median(times["ours"])
        others = {name: median(each) for name, each in times.items() if name != "ours"}
        peer = min(others, key=others.__getitem__, default="")
        return Measured(
            what, shape, ours, peer, ratio(times[peer], times["ours"]) if peer else None, target if peer else None,
            limit[0] if limit else "", ratio([limit[1]], times["ours"]) if limit else None, share,
        )  # fmt: skip

    @property
    def missed(self) -> bool:
        slow = self.ratio is not None and self.target is not None and self.ratio.high < NOISE * self.target
        far = self.reached is not None and self.share is not None and self.reached.high < NOISE * self.share
        return slow or far

    @property
    def reached_all(self) -> bool:
        fast = self.ratio is None or self.target is None or self.ratio.value >= self.target
        return fast and (self.reached is None or self.share is None or self.reached.value >= self.share)

    def cells(self) -> list[str]:
        reached = "" if self.reached is None else f"{self.reached.value:.0%} of {self.bound}"
        goals = [f"{self.target:g}x"] if self.target else []
        goals += [f"{self.share:.0%}"] if self.share else []
        verdict = (
            "" if not goals else "MISSED" if self.missed else "reached" if self.reached_all else "within the noise"
        )
        beside = "" if self.ratio is None else str(self.ratio)
        return [
            self.what,
            self.shape,
            duration(self.seconds),
            self.peer,
            beside,
            reached,
            ", ".join(goals),
            verdict if goals else "",
        ]


HEAD = ["what", "shape", "ours", "fastest peer", "takes", "limit", "target", ""]


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = HEAD) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def duration(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{seconds * 1e3:.3g} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.3g} us"
    )


def write(folder: Path, name: str, machine: str, about: Mapping[str, Any], rows: Sequence[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps({"machine": machine, **about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
    write_whole(path, lambda file: file.write_text(text))
    return path


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of what was written there; none where nothing was."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def plot_lengths(path: Path, curves: Sequence[Any]) -> Path:
    """Time and memory of a training step against length, on logarithmic axes; what is quadratic is dashed."""
    figure, axes = pyplot().subplots(1, 2, figsize=(12, 6), sharex=True)
    for curve in curves:
        dash = "--" if curve.work == "quadratic" else "-"
        axes[0].loglog(curve.tokens, curve.training, dash, label=curve.mixer)
        axes[1].loglog(curve.tokens, [m / 2**30 for m in curve.memory], dash, label=curve.mixer)
    axes[0].set(xlabel="tokens", ylabel="seconds of a training step")
    axes[1].set(xlabel="tokens", ylabel="GiB held beyond the model's input")
    axes[1].legend(fontsize=6, ncols=2, loc="upper left", bbox_to_anchor=(1, 1))
    return save(figure, path)
