"""Time series in a table (CSV or Parquet): a class or a number for each sequence, or what a column will be next.

A row is a sequence, its columns the steps; with `id`, or to forecast, a row is a step, and those of one id are a
sequence, in the order of `time`. Numbers are normed by the training part alone. Forecasts are of the change from the
last value seen, in the training part's deviations, and are split by time: of each sequence the first 70 % train, the
next 10 % validate, the rest test. Of sequences a tenth each are drawn for validation and for test.

What is missing among inputs is the last value before it, or the mean, and an input more says so. Sequences without a
target are left out.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from longwave.data.examples import Examples, padded, ragged
from longwave.data.tables import Columns, made, read_table
from longwave.errors import UserError, check_positive
from longwave.tasks._classified import Classified

TRAIN, VALID = 0.7, 0.8  # where training and validation of a forecast end
CLASSES = 20  # so many different whole numbers are still classes
MADE = {"classify": "shape", "regress": "period", "forecast": "value"}  # the targets of the table made here
Kind = Literal["classify", "regress", "forecast"]


class Table(Classified):
    plan: ClassVar[dict[str, Any]] = {"context": 128, "batch": 32, "lr": 3e-3, "warmup": 50}
    model: ClassVar[dict[str, Any]] = {"d_model": 64, "n_layers": 2, "norm": "layer"}
    decides: ClassVar[tuple[str, ...]] = ("vocab", "d_input", "n_classes", "head", "pool")

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a .csv (.gz) or .parquet file; None: waves made here
        target: str | None = None,  # the column to say
        kind: Kind | None = None,  # None: classify words and few whole numbers, regress other numbers
        inputs: tuple[str, ...] = (),  # columns that are read; none: all of numbers
        id: str | None = None,  # the column that tells sequences apart; None: a row is one, or all are
        time: str | None = None,  # the column that orders the steps of a sequence: numbers or dates
        irregular: bool = False,  # models are told how long each step took, too
        horizon: int = 1,  # steps to forecast
    ) -> None:
        check_positive(horizon=horizon)
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data, target=target, kind=kind, inputs=list(inputs), id=id,
                         time=time, irregular=irregular, horizon=horizon)  # fmt: skip
        if data is None:
            target, id, time = target or MADE[kind or "classify"], id or "id", time or "time"
        if target is None:
            raise UserError("--target must name the column that is to be said")
        if irregular and time is None:
            raise UserError("irregular steps need the column --time")
        self.horizon, self.irregular = horizon, irregular
        self.left_out: list[str] = []
        labels = () if kind in ("regress", "forecast") else (target,)
        table = made() if data is None else read_table(data, {*labels, *([id] if id else [])})
        self.kind: Kind = kind or _kind(table, target)
        if self.kind != "classify":
            self.metric, self.better = "loss", "lower"
        chosen = self._chosen(table, inputs, target, {id, time})
        if self.kind == "forecast" or id is not None:
            self._order(table, id, time)
            self._steps(table, chosen, target)
        else:
            self._whole_rows(table, chosen, target)

    def fits(self) -> dict[str, Any]:
        head = "classify" if self.kind == "classify" else "regress"
        return {**super().fits(), "head": head, "pool": "last" if self.kind == "forecast" else "mean"}

    def _chosen(self, table: Columns, inputs: Iterable[str], target: str, others: set[str | None]) -> list[str]:
        table.column(target)
        asked = list(inputs)
        names = asked or [name for name in table.cells if name != target and name not in others]
        names = [name for name in names if asked or table.is_number(name)]
        for name in names:
            table.numbers(name)  # words among those asked for are an error
        if self.kind == "forecast" and target not in names:
            names.append(target)
        if self.kind != "forecast" and target in names:
            raise UserError(f"{target!r} is the target: it cannot be an input as well")
        if not names:
            raise UserError(f"{table.source} has no column of numbers beside {target!r} to read")
        if not asked:
            rest = [n for n in table.cells if n not in {*names, target, *others}]
            self.left_out = [f"columns of words are not read: {', '.join(rest)}"] if rest else []
        return names

    def _order(self, table: Columns, id: str | None, time: str | None) -> None:
        """Sequence by sequence, each in the order of time: their rows, where they begin, how long each step took."""
        who = np.zeros(len(table), np.int64) if id is None else np.unique(table.column(id), return_inverse=True)[1]
        when = np.arange(len(table), dtype=np.float64) if time is None else table.moments(time)
        self.rows = np.lexsort((when, who))
        who, when = who[self.rows], when[self.rows]
        self.starts = np.concatenate([[0], 1 + np.flatnonzero(np.diff(who)), [len(who)]])
        gaps = np.concatenate([[np.nan], np.diff(when)])
        gaps[self.starts[:-1]] = np.nan
        usual = np.nanmedian(gaps[gaps > 0]) if (gaps > 0).any() else 1.0
        self.dt = np.where(np.isnan(gaps), 1.0, gaps / usual).astype(np.float32)

    def _steps(self, table: Columns, chosen: list[str], target: str) -> None:
        """A row is a step."""
        raw = np.stack([table.numbers(name) for name in chosen], 1)[self.rows]
        if self.kind == "forecast":
            self._windows(table, raw, chosen.index(target))
            return
        labels = table.column(target) if self.kind == "classify" else table.numbers(target)
        labels = labels[self.rows]
        there = _there(labels)
        told_at = np.minimum.reduceat(np.where(there, np.arange(len(labels)), len(labels)), self.starts[:-1])
        told_at = np.where(told_at < self.starts[1:], told_at, self.starts[:-1])  # a sequence whose target nobody told
        first = np.repeat(told_at, np.diff(self.starts))
        differ = np.flatnonzero(there & (labels != labels[first]))
        if len(differ):
            at = int(differ[0])
            told = f"{labels[at]} where line {table.lines[self.rows[first[at]]]} says {labels[first[at]]}"
            raise table.wrong(int(self.rows[at]), target, f"{told}: a sequence has one target")
        spans = [(int(a), int(b)) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]
        kept, parts = self._split(table, target, labels[told_at])
        training = np.concatenate([np.arange(*spans[kept[i]]) for i in parts[0]])
        filled = self._normed(raw, training, raw.shape[1])
        steps = np.concatenate([filled, self.dt[:, None]], 1)
        every = ragged([steps[slice(*spans[i])] for i in kept.tolist()], self.answers)
        self._take(table, every, parts, f"{len(every):,} sequences of {', '.join(chosen)}")

    def _whole_rows(self, table: Columns, chosen: list[str], target: str) -> None:
        """A row is a sequence of single numbers."""
        self.irregular = False
        raw = np.stack([table.numbers(name) for name in chosen], 1)
        labels = table.column(target) if self.kind == "classify" else table.numbers(target)
        kept, parts = self._split(table, target, labels)
        n, steps = len(raw), len(chosen)
        training = (kept[parts[0]][:, None] * steps + np.arange(steps)).ravel()
        self.starts = np.arange(n + 1) * steps
        filled = self._normed(raw.reshape(-1, 1), training, 1).reshape(n, steps, -1)[kept]
        once = np.ones((len(kept), steps, 1), np.float32)
        every = Examples(np.concatenate([filled, once], 2), self.answers)
        self._take(table, every, parts, f"{len(every):,} rows of {steps} steps")

    def _split(self, table: Columns, target: str, labels: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
        """Which sequences have a target; and of these, those for training, validation and test."""
        classes = self.kind == "classify"
        kept = np.flatnonzero(_there(labels))
        if len(kept) < len(labels):
            self.left_out.append(f"{len(labels) - len(kept):,} without a target are left out")
        if len(kept) < 3:
            raise UserError(f"{table.source} has {len(kept)} with a target: training, validation and test need one "
                            "each at least")  # fmt: skip
        order = np.random.default_rng(0).permutation(len(kept))
        held = max(1, len(kept) // 10)
        parts = [np.sort(order[2 * held :]), np.sort(order[:held]), np.sort(order[held : 2 * held])]
        if classes:
            names, self.answers = np.unique(labels[kept], return_inverse=True)
            self.names = [f"{n:g}" if labels.dtype == np.float64 else str(n) for n in names]
            self.n_classes = len(names)
            if self.n_classes < 2:
                raise UserError(f"{table.source}, column {target!r}: there is but one class, {self.names[0]}")
            return kept, parts
        training = labels[kept][parts[0]]
        self.unit = float(training.std()) or 1.0
        self.n_classes = 1
        self.answers = ((labels[kept] - training.mean()) / self.unit).astype(np.float32)[:, None]
        return kept, parts

    def _normed(self, raw: NDArray[np.float64], training: NDArray[np.int64], width: int) -> NDArray[np.float32]:
        """[S, columns]: normed by these rows, filled; and a column more for each that has gaps."""
        seen = raw[training]
        gaps = np.isnan(raw)
        n = np.maximum(1, (~np.isnan(seen)).sum(0))
        mean = np.nansum(seen, 0) / n
        std = np.sqrt(np.nansum((seen - mean) ** 2, 0) / n)
        std = np.where(std > 0, std, 1.0)
        self.scales = mean, std
        holes = gaps[:, gaps.any(0)].astype(np.float32)
        self.d_input = width + holes.shape[1]
        place = np.where(gaps, 0, np.arange(len(raw))[:, None])
        begins = np.repeat(self.starts[:-1], np.diff(self.starts))[:, None]
        place = np.maximum(np.maximum.accumulate(place, 0), begins)
        filled = np.nan_to_num((np.take_along_axis(raw, place, 0) - mean) / std)
        return np.concatenate([filled.astype(np.float32), holes], 1)

    def _windows(self, table: Columns, raw: NDArray[np.float64], which: int) -> None:
        """To forecast: every window of `context` steps with `horizon` more behind it, all within one sequence."""
        T, h = self.context, self.horizon
        spans = list(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True))
        cuts = [(a, a + int(TRAIN * (b - a)), a + int(VALID * (b - a)), b) for a, b in spans]
        training = np.concatenate([np.arange(a, cut) for a, cut, _, _ in cuts])
        filled = self._normed(raw, training, raw.shape[1])
        self.steps = np.concatenate([filled, self.dt[:, None]], 1)
        mean, std = (float(each[which]) for each in self.scales)
        self.unit, self.n_classes = std, h
        future = ((raw[:, which] - mean) / std).astype(np.float32)
        parts = []
        for name, left, right in (("training", 0, 1), ("validation", 1, 2), ("test", 2, 3)):
            first = np.concatenate([
                np.arange(max(cut[0], cut[left] - (T if left else 0)), cut[right] - T - h + 1) for cut in cuts
            ]).astype(np.int64)  # fmt: skip
            ahead = future[first[:, None] + T + np.arange(h)]
            known = ~np.isnan(ahead).any(1)
            if not known.any():
                longest = max(b - a for a, b in spans)
                raise UserError(
                    f"{table.source}: for {name} no sequence has a window of {T} steps and {h} known ones "
                    f"behind it, the longest has {longest:,} rows: take a smaller --context or --horizon"
                )
            first = first[known]
            y = (ahead[known] - filled[first + T - 1, which][:, None]).astype(np.float32)
            parts.append(Examples(first, y))
        self._have(table, parts, f"{len(parts[0]):,} windows of {len(raw):,} rows")

    def _take(self, table: Columns, every: Examples, parts: list[Any], what: str) -> None:
        sizes = np.full(len(every), every.x.shape[1]) if every.sizes is None else every.sizes
        long = int((sizes > self.context).sum())
        if long:
            self.left_out.append(f"{long:,} are cut to --context {self.context}")
            if every.starts is None:
                every = Examples(every.x[:, : self.context], every.y)
        if self.kind == "classify":
            what += f", classes {', '.join(self.names[:CLASSES])}"
        self._have(table, [every.take(part) for part in parts], what)

    def _have(self, table: Columns, parts: list[Examples], what: str) -> None:
        train, valid, test = parts
        self.have(train, valid, test, "; ".join([f"{table.source}: {what}", *self.left_out]))

    def show(self, examples: Examples, some: np.ndarray, random: np.random.Generator | None) -> tuple[Tensor, ...]:
        y = torch.from_numpy(examples.y[some])
        if self.kind == "forecast":
            x = torch.from_numpy(self.steps[examples.x[some][:, None] + np.arange(self.context)])
            lengths = torch.full((len(x),), self.context)
        else:
            x, lengths = padded(examples.rows(some), self.context)
        return (x[..., :-1], y, lengths, *([x[..., -1]] if self.irregular else []))

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        x, target, lengths, *dt = batch
        lost = model.loss(x, target, lengths, *dt, reduction="sum", **how)
        return lost, torch.tensor(target.numel())

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        """Of numbers in the training part's deviations: the loss is the mean squared error, `naive` that of guessing
        the mean, or to forecast the last value; `rmse` is in the target's own unit."""
        answers, targets = [], []
        for x, target, lengths, *dt in batches:
            answers.append(model(x, None, lengths, *dt)[0].float())
            targets.append(target)
        answer, target = torch.cat(answers), torch.cat(targets)
        if self.kind == "classify":
            right = (answer.argmax(-1) == target).float().mean()
            return {"loss": float(F.cross_entropy(answer, target)), "accuracy": float(right)}
        loss = float(F.mse_loss(answer, target))
        return {"loss": loss, "mae": float((answer - target).abs().mean()), "rmse": loss**0.5 * self.unit,
                "naive": float(target.square().mean())}  # fmt: skip


def _there(labels: NDArray[Any]) -> NDArray[np.bool_]:
    return (labels != "") if labels.dtype.kind == "U" else ~np.isnan(labels)


def _kind(table: Columns, target: str) -> Kind:
    """Words are classes, and so are few whole numbers."""
    kinds = np.unique(table.column(target))
    kinds = kinds[kinds != ""]
    try:
        whole = all(float(each).is_integer() for each in kinds[: CLASSES + 1])
        numbers = all(np.isfinite(float(each)) for each in kinds)
    except ValueError:
        return "classify"
    return "regress" if numbers and (len(kinds) > CLASSES or not whole) else "classify"
