"""Generated tasks: what is asked can be answered from what is shown, and from nothing less."""

import numpy as np
import pytest
import torch

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.ops.loss import IGNORE

GENERATED = ["delay", "recall", "selective_copy"]


def make(name, context=64, batch=5, seed=0, **options):
    return tasks.create(name, options, context=context, batch=batch, seed=seed)


@pytest.mark.parametrize("name", tasks.registry.names())
def test_every_task_keeps_the_protocol(name):
    task = make(name, **({"delay": 9} if name == "delay" else {}))
    assert isinstance(task, tasks.Task)
    described = task.describe()
    assert described["task"] == name
    again = tasks.create(name, described["options"], context=64, batch=5, seed=0)
    for a, b in zip(task.batch(7), again.batch(7), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(task.batch(7)[0], task.batch(8)[0])
    assert set(task.fits()) == set(task.decides)
    assert task.better in ("higher", "lower")


@pytest.mark.parametrize("name", GENERATED)
def test_a_model_learns_something_of_it(name):
    easy = {"delay": {"delay": 1}, "recall": {"pairs": 1, "symbols": 2}, "selective_copy": {"items": 1, "symbols": 2}}
    task = make(name, context=8, batch=32, **easy[name])
    torch.manual_seed(0)
    model = lw.create_model(task.preset, **task.fits(), mixer="gru", d_model=16, n_layers=1)
    task.check(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    with torch.no_grad():
        before = task.validate(model)
    for step in range(120):
        optimizer.zero_grad()
        loss, count = task.loss(model, task.batch(step))
        (loss / count).backward()
        optimizer.step()
    with torch.no_grad():
        after = task.validate(model)
        tested = task.test(model)
    assert after["loss"] < 0.7 * before["loss"]
    assert tested.keys() == after.keys() and task.metric in tested
    assert 0 < abs(tested["loss"] - after["loss"]) < 0.2 * before["loss"]  # other examples of the same kind
    if "accuracy" in after:
        assert after["accuracy"] > 0.9


def test_copying_asks_for_the_symbols_in_order():
    tokens, target = make("selective_copy", context=40, items=6, symbols=9).batch(0)
    for row, goal in zip(tokens.tolist(), target.tolist(), strict=True):
        assert [t for t in row[:-6] if t < 9] == goal[-6:]
        assert row[-6:] == [10] * 6
        assert set(goal[:-6]) == {IGNORE}
    assert len({tuple(np.flatnonzero(row < 9)) for row in tokens.numpy()}) > 1


def test_recall_asks_for_the_value_beside_the_key():
    tokens, target = make("recall", context=50, pairs=7, symbols=11).batch(0)
    for row, goal in zip(tokens.tolist(), target.tolist(), strict=True):
        pairs = dict(zip(row[:14:2], row[1:14:2], strict=True))
        assert len(pairs) == 7
        asked = [(row[t], goal[t]) for t in range(50) if goal[t] != IGNORE]
        assert sorted(asked) == sorted(pairs.items())


def test_delay_asks_for_the_past_of_a_smooth_signal():
    signal, past = make("delay", context=200, batch=50, delay=30, period=20.0).batch(0)
    assert torch.equal(past[:, 30:], signal[:, :-30])
    assert float(signal.var()) == pytest.approx(1, abs=0.15)
    spectrum = torch.fft.rfft(torch.cat([past[:, :30], signal], 1)[..., 0]).abs().mean(0)
    assert float(spectrum[230 // 20 + 2 :].max()) < 1e-3 * float(spectrum.max())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("selective_copy", {"items": 40}, "40 items of 16 symbols do not fit into a --context of 64"),
        ("recall", {"pairs": 30}, "30 pairs take 90 tokens"),
        ("delay", {"delay": 64}, "a delay of 64 must be positive and less than --context 64"),
        ("recall", {"pair": 3}, "no option 'pair': did you mean 'pairs'"),
    ],
)
def test_what_does_not_fit_is_refused(name, options, words):
    with pytest.raises(lw.UserError, match=words):
        make(name, **options)
    with pytest.raises(lw.UserError, match="causal model of 18 tokens"):
        make("selective_copy").check(lw.create_model("lm", mixer="gru", vocab=5, d_model=8, n_layers=1))


def test_a_preset_with_a_longest_context_is_trained_at_that_of_the_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("some words, again and again. " * 200)
    tiny = ["--d-model", "8", "--n-layers", "1", "--n-heads", "2", "--vocab", "256", "--batch", "2", "--steps", "1"]
    assert main(["train", "--model", "gpt2", *tiny, "--context", "24", "--data", "text", "--out", "run"]) == 0
    assert "24" in str(lw.load("run").spec.to_json())


def test_next_bytes_are_for_language_models(capsys):
    asked = ["--model", "classifier", "--n-classes", "3", "--vocab", "256", "--d-model", "8", "--n-layers", "1"]
    assert main(["train", *asked, "--steps", "1"]) == 2
    assert "needs a language model, not a SequenceModel" in capsys.readouterr().err
