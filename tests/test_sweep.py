"""What helps to choose the settings of a run: sweeps over flags, and finders of learning rate and batch size."""

import json

import pytest

from longwave.cli import main
from longwave.commands import tune
from longwave.compare.search import Axis, Halving, drawn, grid, shorter
from longwave.compare.trial import Result, Trial
from longwave.errors import UserError
from longwave.spec import Spec
from longwave.train.finder import Batch, Rates, noise_scale
from longwave.train.plan import Plan

TINY = ["--task", "recall", "--pairs", "2", "--symbols", "8", "--d-model", "8", "--n-layers", "1", "--context", "16",
        "--batch", "4"]  # fmt: skip


def test_a_sweep(tmp_path, capsys):
    words = ["sweep", "lr=1e-3,1e-2", *TINY, "--mixer", "gru", "--steps", "3", "--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    found = [json.loads(file.read_text()) for file in tmp_path.glob("*/result.json")]
    best = max(each["metrics"]["accuracy"] for each in found)
    assert len(found) == 2 and out.splitlines()[4].split()[1] == f"{best:.4f}"
    again = out.partition("train the best:  longwave ")[2].split()
    assert again[-2:] in (["--lr", "1e-3"], ["--lr", "1e-2"]) and "--out" not in again
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/result.json")}
    assert main(words) == 0
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_points():
    axes = [Axis.read("lr=1,2"), Axis.read("gru.n-heads=a,b")]
    assert grid(axes)[:2] == [{"lr": "1", "gru.n-heads": "a"}, {"lr": "1", "gru.n-heads": "b"}]
    points = drawn([Axis.read("lr=1e-4..1e-2"), Axis.read("d-model=8..64")], 200, seed=0)
    rates = [float(p["lr"]) for p in points]
    assert min(rates) >= 1e-4 and max(rates) <= 1e-2 and 0.4 < sum(r < 1e-3 for r in rates) / 200 < 0.6
    assert all(8 <= int(p["d-model"]) <= 64 for p in points)
    assert len(drawn(axes, 50, seed=0)) == 4  # all there are
    for wrong in ("lr", "lr=", "lr=a..b", "lr=2..1"):
        with pytest.raises(UserError):
            Axis.read(wrong)
    with pytest.raises(UserError, match="--how random"):
        grid([Axis.read("lr=1..2")])


def test_the_best_third_goes_on():
    trials = [Trial(f"{i}", Spec("x"), "recall", {}, Plan(steps=90, seed=i)) for i in range(9)]
    halving = Halving(trials, lambda result: result.metrics["loss"])
    todo, ran = halving.first(), []
    while todo:
        trial = todo.pop(0)
        ran.append((int(trial.label), trial.plan.steps))
        failed = trial.label == "0"  # would have been the best
        todo += halving.then(trial, Result(error="NaN") if failed else Result(metrics={"loss": float(trial.label)}))
    assert sorted(ran) == sorted([*((i, 10) for i in range(9)), (1, 30), (2, 30), (3, 30), (1, 90)])
    assert [which for which, _ in halving.order()] == [1, 2, 3, 4, 5, 6, 7, 8, 0]
    assert shorter(Plan(minutes=9.0), 1 / 3).minutes == pytest.approx(3)


def test_finders(capsys, monkeypatch):
    monkeypatch.setattr(tune, "MOST", 4)
    assert main(["tune", "batch", *TINY, "--mixer", "gru"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]] == ["1", "2", "4"]
    assert main(["tune", "lr", *TINY, "--mixer", "gru", "--steps", "30"]) == 0
    assert 1e-6 < float(capsys.readouterr().out.split("--lr ")[1].split()[0]) < 1
    flat = [3.0] * 6
    assert Rates([10.0**i for i in range(10)], [*flat, 2.9, 1.0, 0.9, 5.0]).best == pytest.approx(1e6)
    # |mean gradient|^2 of B sequences is |true|^2 + variance / B: 4 and 80
    assert noise_scale(Batch(2, 1, 0, 4 + 80 / 2), Batch(16, 1, 0, 4 + 80 / 16)) == pytest.approx(20)


def test_wrong_words(capsys):
    for words, said in [
        (["sweep"], "say what to try"),
        (["sweep", "lr=1,2", "--lr", "3"], "one of them"),
        (["sweep", "lrr=1,2"], "no option --lrr"),
        (["tune", "rl"], "did you mean 'lr'"),
    ]:
        assert main(words) == 2
        assert said in capsys.readouterr().err
