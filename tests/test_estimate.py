"""What a run is said to take is what it takes."""

import re

import pytest

from longwave.cli import main
from longwave.train.estimate import Plan, _exponent, _lengths, _memory, _Trial, words

TINY = ["--mixer", "gru", "--d-model", "16", "--n-layers", "1", "--batch", "2"]


def test_trials_double_up_to_the_plan_and_begin_above_a_chunk():
    assert _lengths(Plan(context=200)) == [200]
    assert _lengths(Plan(context=2048)) == [256, 512, 1024, 2048]
    assert _lengths(Plan(context=1 << 14, chunk=1024)) == [2048, 4096, 8192, 16384]


def test_what_was_not_tried_is_extrapolated():
    trials = [_Trial(1000, 1.0, 500 << 20, 0.1), _Trial(2000, 4.0, 700 << 20, 0.2)]
    assert _exponent(trials) == pytest.approx(2)
    assert _memory(trials, 4000) == 1100 << 20
    assert _memory(trials, 2000) == 700 << 20
    assert [words(s) for s in (0.25, 59.0, 61, 7260)] == ["0.25 s", "59 s", "1 min 01 s", "2 h 01 min"]


def test_the_command_line_says_it_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["estimate", *TINY, "--steps", "40", "--context", "64"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"parameters +\d,\d\d\d", said)
    assert re.search(r"memory +\d+\.\d\d GiB, the process at most", said)
    assert re.search(r"40 steps +.+ s with validation", said)
    assert list(tmp_path.iterdir()) == []
    assert main(["estimate", "--stepz", "3"]) == 2
    assert "did you mean '--steps'" in capsys.readouterr().err


def test_long_sequences_are_not_run_whole(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("longwave.train.estimate.PATIENCE", 0.02)
    assert main(["estimate", *TINY, "--steps", "40", "--context", "8192"]) == 0
    assert "extrapolated to 8,192" in capsys.readouterr().out
