"""One command draws how many pairs each mixer holds, and does nothing twice."""

import json

from longwave.cli import main

TINY = ["--pairs", "1,2", "--steps", "3", "--batch", "2", "--d-model", "8"]


def test_the_curve(tmp_path, capsys):
    call = ["profile", "recall", "--mixers", "gru,mamba", *TINY, "--out", str(tmp_path / "r")]
    assert main(call) == 0
    first = capsys.readouterr().out
    assert [line.split()[0] for line in first.splitlines() if line.startswith(("gru", "mamba"))] == ["gru", "mamba"]
    assert (tmp_path / "r" / "recall.png").stat().st_size > 1000
    point = json.loads((tmp_path / "r" / "gru-2" / "point.json").read_text())
    assert point["pairs"] == 2
    assert point["state"] == 2 * 8 * 4 + 2 * 8  # two GRUs of width 8, and two counters of tokens
    (tmp_path / "r" / "gru-1" / "point.json").unlink()  # as if killed after training
    assert main(call) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[-4:] == first.splitlines()[-4:]


def test_wrong_words(capsys):
    for wrong, words in [
        (["--pairs", "4,x"], "positive whole numbers"),
        (["--mixers", "grru"], "did you mean 'gru'"),
        (["--pair", "4"], "did you mean '--pairs'"),
    ]:
        assert main(["profile", "recall", *wrong]) == 2
        assert words in capsys.readouterr().err
    assert main(["profile", "hipo"]) == 2
    assert "did you mean 'hippo'" in capsys.readouterr().err
