"""How many pairs a model of each mixer can hold: associative recall, trained and judged, against the number of pairs.

Attention looks back, so it does not care; a state of fixed size fills up. Arora et al. 2024 ("Zoology"), Figure 2.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from longwave import models, tasks
from longwave.errors import UserError
from longwave.files import write_whole
from longwave.probe.picture import pyplot, save
from longwave.train.loop import Trainer
from longwave.train.plan import Plan

SYMBOLS = 128


@dataclass(frozen=True)
class Point:
    mixer: str
    pairs: int
    accuracy: float
    state: int  # bytes a row, after the whole sequence


def points(mixers: Sequence[str], pairs: Sequence[int], plan: Plan, folder: Path, **model: Any) -> Iterator[Point]:
    """Train and judge each mixer on each number of pairs; what is in the folder already is not done again."""
    for mixer in mixers:
        for n in pairs:
            done = folder / f"{mixer}-{n}" / "point.json"
            if not done.exists():
                _write(done, _judge(mixer, n, plan, done.parent, model))
            yield Point(**json.loads(done.read_text(encoding="utf-8")))


def _judge(mixer: str, pairs: int, plan: Plan, folder: Path, model: Mapping[str, Any]) -> Point:
    options = {"pairs": pairs, "symbols": SYMBOLS}
    how = Plan(**{**asdict(plan), "context": max(plan.context, 3 * pairs)})
    task = tasks.create("recall", options, context=how.context, batch=how.batch, seed=how.seed)
    torch.manual_seed(how.seed)
    made = models.create(models.preset("lm", mixer=mixer, **{**model, **task.fits()}))
    task.check(made)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(made, task, how, folder)
    if (folder / "last.safetensors").exists():
        trainer.resume()
    outcome = trainer.run()
    if outcome.ended == "interrupted":
        raise UserError(f"stopped; the same command goes on from {folder}")
    metrics = outcome.metrics or trainer.validate(quick=False)  # none where the run was complete already
    made.eval()
    with torch.no_grad():
        _, state = made(task.batch(0)[0][:1], made.init_state(1))
    return Point(mixer, pairs, metrics["accuracy"], state.nbytes)


def _write(path: Path, point: Point) -> None:
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(asdict(point)), encoding="utf-8"))


def draw(found: Sequence[Point], path: Path) -> Path:
    figure, axes = pyplot().subplots(figsize=(7, 4.5))
    for mixer in dict.fromkeys(point.mixer for point in found):
        own = [point for point in found if point.mixer == mixer]
        axes.plot([p.pairs for p in own], [p.accuracy for p in own], marker="o", label=mixer)
    axes.set(xlabel="pairs to be held", ylabel="values said right", xscale="log", ylim=(-0.02, 1.02))
    axes.set_xticks([point.pairs for point in found], [str(point.pairs) for point in found])
    axes.legend()
    return save(figure, path)
