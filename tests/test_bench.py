"""The benchmarks measure what they say, and say when a target is missed."""

import json
import time

import pytest
import torch

from longwave import mixers
from longwave.bench import length, limits, ops
from longwave.bench.race import Ratio, forward_backward, race, ratio
from longwave.bench.report import Measured
from longwave.cli import main
from longwave.train.memory import peak


def test_a_race_is_run_in_turns():
    order = []
    runs = {
        name: lambda name=name: (order.append(name), time.sleep(0.002 if name == "slow" else 0))
        for name in ("a", "slow")
    }
    times = race(runs, rounds=5, seconds=60)
    assert order == ["a", "a", "slow", "slow"] * 5
    assert [len(each) for each in times.values()] == [5, 5]
    found = ratio(times["slow"], times["a"])
    assert found.low <= found.value <= found.high
    assert found.value > 5


def test_gradients_are_taken_of_every_input():
    seen = []

    def twice(x, n):
        if torch.is_grad_enabled():
            x.register_hook(seen.append)
        return x * n

    forward_backward(twice, [torch.randn(3), 2])()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("took", "target", "missed", "word"),
    [(20.0, 10, False, "reached"), (9.0, 10, False, "within the noise"), (5.0, 10, True, "MISSED")],
)
def test_targets(took, target, missed, word):
    times = {"ours": [1.0] * 5, "other": [took] * 5, "slower": [99.0] * 5}
    row = Measured.of("op", "B=1", times, target=target, limit=("stream", 0.5), share=0.4)
    assert (row.peer, row.ratio, row.reached) == ("other", Ratio(took, took, took), Ratio(0.5, 0.5, 0.5))
    assert row.missed is missed
    assert row.cells()[-1] == word


def test_a_share_of_the_limit_can_be_missed_too():
    assert Measured.of("op", "", {"ours": [1.0]}, limit=("exp", 0.3), share=0.5).missed
    assert not Measured.of("op", "", {"ours": [1.0]}, limit=("exp", 0.45), share=0.5).missed
    assert not Measured.of("op", "", {"ours": [0.6, 1.0, 1.1]}, limit=("exp", 0.3), share=0.5).missed  # not so surely


def test_the_limits_of_this_machine_are_plausible():
    most = limits.measure()
    assert set(most) == {"stream", "fma", "exp", "gemm"}
    assert 1e9 < most["stream"] < 1e13
    assert 1e8 < most["exp"] < most["fma"] < 1e14
    assert most["gemm"] < 1.3 * most["fma"]


def test_memory_is_that_of_the_work():
    held = []
    _, most = peak(lambda: held.append(torch.ones(1 << 26)))  # 256 MiB
    assert 0.9 < most / (1 << 28) < 1.3
    held.clear()


def test_every_contest_can_be_run():
    for make in ops.contests()[:1]:
        contest = make()
        assert contest.peers
        contest.peers.clear()
        rows = list(ops.measure(contest, {"exp": 1e10, "stream": 1e10, "fma": 1e11}, with_peers=False))
        assert [row.what for row in rows] == ["selective scan, forward", "selective scan, forward + backward"]
        assert all(row.seconds > 0 for row in rows)


def test_the_slope_is_that_of_long_sequences():
    tokens = [1 << i for i in range(12, 21)]
    assert length.slope(tokens, [1e-3 + 1e-6 * n for n in tokens]) < 1.0
    assert length.slope(tokens, [float(n) ** 2 for n in tokens]) == pytest.approx(2)
    curve = length.Curve("x", "linear", tokens, [float(n) ** 1.3 for n in tokens], [float(n) for n in tokens])
    assert curve.missed


def test_every_mixer_says_how_its_time_grows():
    for name in mixers.names():
        assert mixers.registry.get(name).work in ("linear", "fft", "loop", "quadratic"), name


def test_the_command_line(tmp_path, capsys):
    assert main(["bench", "ops", "--only", "S4D", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "S4D kernel, forward + backward" in said
    stored = json.loads((tmp_path / "ops-tuned.json").read_text())
    assert stored["rows"][0]["shape"] == "D=256 N=32 T=1024"
    assert stored["machine"] == limits.machine()
    assert main(["bench", "ops", "--only", "nothing", "--out", str(tmp_path)]) == 2
    assert main(["bench", "op"]) == 2
    assert "did you mean 'ops'" in capsys.readouterr().err


def test_lengths(tmp_path, capsys):
    assert main(["bench", "length", "--only", "mingru", "--tokens", "8192", "--out", str(tmp_path)]) == 0
    assert "mingru | 8,192" in capsys.readouterr().out
    assert (tmp_path / "length.png").stat().st_size > 1000
    stored = json.loads((tmp_path / "length.json").read_text())
    stored["rows"][0]["training"][-1] = 123.0
    (tmp_path / "length.json").write_text(json.dumps(stored))
    again = ["bench", "length", "--only", "mingru,positions", "--tokens", "8192", "--resume", "--out", str(tmp_path)]
    assert main(again) == 0  # without parameters there is the gradient of the input
    said = capsys.readouterr().out
    assert "123.00 s" in said
    assert "positions | 8,192" in said
