"""Comparisons are fair, finish, go on where they were killed, and say what their differences are worth."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
import scipy.stats

from longwave import models, tasks
from longwave.cli import main
from longwave.compare import curve, flops, match, statistics, trial
from longwave.compare.charts import Line, chart
from longwave.errors import UserError
from longwave.files import read_tensors
from longwave.models import preset
from longwave.spec import Spec
from longwave.train.loop import Trainer
from longwave.train.plan import Plan

TINY = ["--task", "recall", "--pairs", "2", "--symbols", "8", "--d-model", "16", "--n-layers", "1", "--context", "16",
        "--batch", "4", "--steps", "4", "--seeds", "2", "--rates", "2", "--tuning", "0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


def call(home, *words):
    return main(["compare", *words, *TINY, "--out", str(home)])


def results(home):
    return {file.parent.name: json.loads(file.read_text()) for file in home.glob("*/result.json")}


def test_a_comparison(home, capsys):
    assert call(home, "gru", "attention", "fnet") == 0
    out = capsys.readouterr().out
    rows = dict(re.findall(r"^(gru|attention|fnet) {2,}(.*)$", out, re.MULTILINE))
    assert "failed: this task needs a causal model" in rows["fnet"]
    sizes = [int(re.search(r"\d,\d{3}", rows[name])[0].replace(",", "")) for name in ("gru", "attention")]
    assert abs(sizes[0] / sizes[1] - 1) <= match.WITHIN
    assert "2 seeds are too few" in out
    page = (home / "report.html").read_text()
    assert page.count("<svg") == 4 and "<script" not in page and "src=" not in page
    found = results(home)
    assert len(found) == 2 * 2 + 2 * 2 + 2  # rates and seeds of two, and the rates of what failed
    one = next(each for name, each in found.items() if name.startswith("gru") and each["lengths"])
    assert one["state"] == 16 * 4 + 8  # a GRU of width 16, and a counter of tokens
    assert [at["tokens"] for at in one["lengths"]] == [8, 16, 32, 64]


def test_nothing_is_done_twice(home, capsys):
    if not results(home):
        call(home, "gru", "attention", "fnet")
    before = {file: file.stat().st_mtime_ns for file in home.glob("*/result.json")}
    lost = sorted(home.glob("gru*/result.json"))[0]
    metrics = json.loads(lost.read_text())["metrics"]
    lost.unlink()  # as if killed between training and judging
    assert call(home, "gru", "attention", "fnet") == 0
    assert json.loads(lost.read_text())["metrics"] == metrics
    assert {file for file, at in before.items() if file.stat().st_mtime_ns != at} == {lost}


def one(**plan):
    model = preset("lm", mixer="gru", d_model=8, n_layers=1, vocab=17)
    how = dict(steps=6, batch=2, context=16, lr=1e-2, save_every=0.0)
    return trial.Trial("gru", model, "recall", {"pairs": 2, "symbols": 8}, Plan(**{**how, **plan}))


def test_a_killed_trial_goes_on(tmp_path, monkeypatch):
    whole = trial.run(trial.prepare(one(), tmp_path / "whole"))
    step = Trainer.step

    def killed(self, i):
        if i == 3:
            raise KeyboardInterrupt
        return step(self, i)

    monkeypatch.setattr(Trainer, "step", killed)
    folder = trial.prepare(one(), tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        trial.run(folder)
    assert trial.read_result(folder) is None
    monkeypatch.setattr(Trainer, "step", step)
    again = trial.run(folder)
    assert again.metrics == whole.metrics and again.steps == 6
    weights = [read_tensors(f / "last.safetensors", "model")[0]["embed.weight"]
               for f in (folder, tmp_path / "whole" / one().name)]  # fmt: skip
    assert bool((weights[0] == weights[1]).all())


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_trial_that_fails_says_why(tmp_path):
    assert "not a number" in trial.run(trial.prepare(one(lr=1e30, clip=0.0), tmp_path)).error
    assert one().name == one(save_every=5.0).name != one(seed=1).name


def test_early_stopping_is_judged_at_its_best(tmp_path):
    found = trial.run(trial.prepare(one(lr=1.0, warmup=0, steps=60, patience=1, validate_every=1), tmp_path))
    assert found.ended.startswith("no better for 1") and found.steps < 60
    points = curve.validations(tmp_path / one(lr=1.0, warmup=0, steps=60, patience=1, validate_every=1).name, 1)
    assert min(p.metrics["loss"] for p in points) < points[-1].metrics["loss"]


def test_ctrl_c_says_how_to_go_on(tmp_path):
    words = [*TINY, "--steps", "100000", "--rates", "1", "--seeds", "1", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from longwave.cli import entry; entry()", "compare", "gru", "rnn", *words],
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while time.monotonic() < until and not all(any(tmp_path.glob(f"{n}*/log.jsonl")) for n in ("gru", "rnn")):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "the same command goes on: longwave compare gru rnn" in said
    assert len(list(tmp_path.glob("*/last.safetensors"))) == 2 and not results(tmp_path)


def test_tests_of_significance():
    random = np.random.default_rng(0)
    for n, m in [(2, 2), (3, 3), (3, 5), (10, 4)]:
        a, b = random.normal(0, 1, n).tolist(), random.normal(0.8, 3, m).tolist()
        assert statistics.welch(a, b) == pytest.approx(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue, abs=1e-6)
        dealt = scipy.stats.permutation_test((a, b), lambda x, y: abs(np.mean(x) - np.mean(y)), alternative="greater")
        assert statistics.permutation(a, b) == pytest.approx(dealt.pvalue)
    assert statistics.welch([1, 1], [1, 1]) == 1 and statistics.welch([1, 1], [2, 2]) == 0
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # worked by hand


def test_where_curves_cross():
    assert curve.crossings([0, 1, 2], [0, 1, 2], [0, 2], [1, 1]) == [1]
    assert curve.crossings([0, 4], [0, 4], [0, 1, 4], [3, 3, 1]) == pytest.approx([2.2])
    assert curve.crossings([0, 1], [0, 1], [0, 1], [0, 2]) == []  # the same at first
    assert curve.crossings([0, 1], [0, 1], [5, 6], [0, 2]) == []
    assert curve.mean([([0, 2], [0, 2]), ([1, 3], [3, 5])]) == ([1, 2], [2, 3])
    picture = chart("a & b", "x", "y", [Line("<one>", [1, 100], [1, 2], [0, 1], [2, 3])], log_x=True)
    assert "a &amp; b" in picture and "&lt;one&gt;" in picture and picture.count("<circle") == 2


def test_flops_are_counted():
    task = tasks.create("recall", {"pairs": 2, "symbols": 8}, context=16, batch=1, seed=0)
    spec = Spec("language_model", d_model=8, vocab=17, blocks=[Spec("ffn", kind="relu", d_hidden=32)])
    products = 6 * 16 * (2 * 8 * 32) + 6 * 2 * (8 * 17)  # forward and twice backward; logits where one is asked for
    found = flops.training_flops(models.create(spec), task)
    assert products <= found <= 1.35 * products + 6 * 16 * 8 * 17
    lstm = spec.but(blocks=[Spec("lstm")])
    cell = 6 * 16 * (8 * 8 * 8)
    assert flops.training_flops(models.create(lstm), task) >= cell


def test_widths_are_solved_for():
    task = tasks.create("recall", {"pairs": 2, "symbols": 8}, context=16, batch=1, seed=0)

    def build(mixer, ffn, width):
        return preset("lm", mixer=mixer, ffn=ffn, d_model=width, n_layers=1, vocab=17)

    builds = {name: partial(build, name, "swiglu") for name in ("attention", "mamba", "s4d", "lstm", "hyena")}
    for size, width in ((match.parameters, 64), (match.flops(task), 16)):
        fits = match.match(builds, width, size)
        assert all(abs(fit.off) <= match.WITHIN for fit in fits.values())
    alone = {name: partial(build, name, None) for name in ("s4d", "lstm")}  # by the width of the model alone
    assert all(abs(fit.off) <= match.WITHIN for fit in match.match(alone, 64, match.parameters).values())
    assert not match.possible(builds["attention"], 15)


def test_wrong_words(capsys):
    from longwave.commands._trials import duration

    assert [duration(each) for each in ("90s", "10m", "10", "1h30m", "1.5m")] == [90, 600, 600, 5400, 90]
    for wrong in ("", "soon", "-3m", "1..2m"):
        with pytest.raises(UserError, match="10m"):
            duration(wrong)
    for words, said in [
        (["gru"], "two mixers or more"),
        (["gru", "mambo"], "did you mean 'mamba'"),
        (["gru", "rnn", "--minutes", "3"], "no option --minutes"),
    ]:
        assert main(["compare", *words]) == 2
        assert said in capsys.readouterr().err
