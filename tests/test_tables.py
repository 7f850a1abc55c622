"""Tables as data: what is read from them, what is wrong with them, and what is learnt of them."""

import gzip
import json

import numpy as np
import pytest
import torch

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data.tables import read_table


def make(path=None, context=16, batch=8, **options):
    return tasks.create("table", {"data": path and str(path), **options}, context=context, batch=batch, seed=0)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_cells_are_numbers_words_dates_or_missing(tmp_path):
    file = write(tmp_path / "a.csv", '\ufeffday;a;b\n2024-01-01;1.5;x\n\n2024-01-02 12:00;NA;"y;z"\n2024-01-04;;?\n')
    found = read_table(str(file))
    assert found.lines.tolist() == [2, 4, 5]
    np.testing.assert_array_equal(found.column("a"), [1.5, np.nan, np.nan])
    assert found.column("b").tolist() == ["x", "y;z", ""]
    assert (np.diff(found.moments("day")) / 3600).tolist() == [36.0, 36.0]
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"a": pa.array([1.5, None, 2]), "b": ["x", None, "z"], "n": [1, 2, 3]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    other = read_table(str(tmp_path / "a.parquet"))
    np.testing.assert_array_equal(other.column("a"), [1.5, np.nan, 2])
    assert other.column("b").tolist() == ["x", "", "z"] and other.column("n").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {"target": "b"}, "is empty: its first line must name the columns"),
        ("a,b\n", {"target": "b"}, "no rows"),
        ("1,2\n3,4\n", {"target": "b"}, "the first line must name the columns, this one is numbers"),
        ("a,a\n3,4\n", {"target": "b"}, "two columns 'a'"),
        ("a,b\n1,2\n3\n", {"target": "b"}, "line 3: 1 cells, the first line names 2"),
        ("a,b\n1,2\nx1,4\n", {"target": "b"}, "line 3, column 'a': 'x1' is not a number"),
        ("a,b\n1,2\ninf,4\n", {"target": "b"}, "line 3, column 'a': 'inf' is not a number"),
        ("a,speed\n1,2\n", {"target": "sped"}, "no column 'sped': did you mean 'speed'"),
        ("a,b\n1,2\n", {}, "--target must name"),
        ("a,b\n1,2\n", {"target": "b"}, "has 1 with a target: training, validation and test need one each"),
        ("w,b\nu,2\nv,3\nu,4\n", {"target": "b"}, "no column of numbers beside 'b'"),
        ("a,b\n1,2\n2,3\n", {"target": "b", "kind": "forecast"}, "for training no sequence has a window of 16 steps"),
        ("a,b,s\n1,2,u\n2,3,u\n", {"target": "b", "id": "s"}, "line 3, column 'b': 3 where line 2 says 2"),
        ("a,b,t\n1,2,soon\n2,3,late\n", {"target": "b", "kind": "forecast", "time": "t"}, "'soon' is not a number"),
        ("a,b\n1,x\n2,x\n3,x\n", {"target": "b"}, "but one class, x"),
        ("a,b\n1,x\n2,y\n3,x\n", {"target": "b", "inputs": ("b",)}, "line 2, column 'b': 'x' is not a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, options, words):
    with pytest.raises(lw.UserError) as said:
        make(write(tmp_path / "a.csv", text), **options)
    assert words in str(said.value)
    with pytest.raises(lw.UserError, match=r"cannot read .*none\.csv: No such file"):
        make(tmp_path / "none.csv", target="x")


def test_rows_are_steps_of_their_sequence_in_the_order_of_time(tmp_path):
    rows = [(i, t, 10 * i + t, "even" if i % 2 == 0 else "odd") for i in range(30) for t in range(5)]
    lines = [f"{i},{t * t},{v if v != 22 else ''},{c}" for i, t, v, c in rows]
    mixed = [lines[j] for j in np.random.default_rng(0).permutation(len(lines))]
    file = write(tmp_path / "a.csv", "\n".join(["who,when,value,class", *mixed]))
    task = make(file, target="class", id="who", time="when", irregular=True)
    assert task.kind == "classify" and task.d_input == 2  # the value, and whether it was there
    every = [task.show(part, np.arange(len(part)), None) for part in (task.train, task.valid, task.unseen)]
    mean, std = (float(each[0]) for each in task.scales)
    seen = {}
    for x, y, lengths, dt in every:
        assert (lengths == 5).all()
        for row, label, gap in zip(x, y.tolist(), dt, strict=True):
            values = row[:, 0] * std + mean
            who = round(float(values[0]) / 10)
            seen[who] = label
            wanted = [10 * who + t for t in range(5)] if who != 2 else [20, 21, 21, 23, 24]  # the last one before
            np.testing.assert_allclose(values, wanted, atol=1e-3)
            assert row[:, 1].tolist() == [float(who == 2 and t == 2) for t in range(5)]
            np.testing.assert_allclose(gap[1:] / gap[1], [1, 3, 5, 7], rtol=1e-6)
    assert seen == {i: i % 2 for i in range(30)}  # classes in the order of their names: even, odd
    x = torch.cat([each[0] for each in every[:1]])[..., 0]
    assert float(x.mean()) == pytest.approx(0, abs=0.02)  # of the training part alone
    assert float(x.std()) == pytest.approx(1, abs=0.02)


def test_a_sequence_without_a_target_is_left_out_and_one_row_of_it_may_tell(tmp_path):
    lines = [f"{i},{t},{i}.5" if t == 2 and i != 7 else f"{i},{t}," for i in range(12) for t in range(4)]
    task = make(write(tmp_path / "a.csv", "\n".join(["who,v,y", *lines])), target="y", id="who", kind="regress")
    parts = (task.train, task.valid, task.unseen)
    assert [len(part) for part in parts] == [9, 1, 1] and "1 without a target are left out" in task.source
    said = np.concatenate([part.y[:, 0] for part in parts]) * task.unit
    assert sorted(np.round(said - said.min(), 3).tolist()) == [i for i in range(12) if i != 7]


def test_forecasts_are_split_by_time_and_say_the_change(tmp_path):
    values = np.random.default_rng(0).normal(size=200).round(6)
    file = write(tmp_path / "a.csv", "\n".join(["t,v", *[f"{t},{v}" for t, v in enumerate(values)]]))
    task = make(file, target="v", kind="forecast", time="t", inputs=("v",), horizon=3)
    mean, std = values[:140].mean(), values[:140].std()
    for part, last in ((task.train, 140), (task.valid, 160), (task.unseen, 200)):
        x, y, _ = task.show(part, np.arange(len(part)), None)
        assert part.x[-1] + 16 + 3 == last
        for i, first in enumerate(part.x.tolist()):
            np.testing.assert_allclose(x[i, :, 0] * std + mean, values[first : first + 16], atol=1e-4)
            np.testing.assert_allclose((y[i] + x[i, -1]) * std + mean, values[first + 16 : first + 19], atol=1e-4)
    assert task.valid.x[0] + 16 == 140 and task.unseen.x[0] + 16 == 160  # what is asked was not trained on


def test_from_a_file_to_a_trained_model_on_the_command_line(tmp_path, capsys):
    random = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{(a + b) > 0:d},note" for a, b in random.normal(size=(200, 2))]
    file = write(tmp_path / "my.csv", "\n".join(["a,b,y,remark", *rows]))
    words = ["--task", "table", "--data", str(file), "--target", "y", "--d-model", "16", "--n-layers", "1"]
    how = ["--steps", "80", "--lr", "0.01"]
    assert main(["train", *words, *how, "--mixer", "gru", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "columns of words are not read: remark" in said.err and "classes 0, 1" in said.err
    assert main(["eval", str(tmp_path / "run"), "--test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.8


def test_regression_of_waves_made_here():
    task = make(kind="regress", irregular=True, context=40, batch=16)
    torch.manual_seed(0)
    model = lw.create_model("classifier", **task.fits(), mixer="s4d", d_model=16, n_layers=1)
    task.check(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for step in range(40):
        loss, count = task.loss(model, task.batch(step))
        (loss / count).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found = task.test(model)
    assert found["loss"] < 0.8 * found["naive"]
    assert found["rmse"] == pytest.approx(found["loss"] ** 0.5 * task.unit)


def test_long_files_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("longwave.data.tables.BLOCK", 3)
    file = write(tmp_path / "a.csv", "n,w\n" + "NA,\n" * 4 + "1,a\n" * 4)
    found = read_table(str(file))
    np.testing.assert_array_equal(found.column("n"), [np.nan] * 4 + [1] * 4)
    assert found.column("w").tolist() == [""] * 4 + ["a"] * 4


def test_real_series(shared_data):
    task = make(shared_data / "series" / "ETTh1.csv.gz", target="OT", kind="forecast", time="date", horizon=24,
                context=96)  # fmt: skip
    assert task.d_input == 7 and len(task.train) == int(0.7 * 17420) - 96 - 24 + 1
    with gzip.open(shared_data / "series" / "ETTh1.csv.gz", "rt") as lines:
        last = [float(line.rpartition(",")[2]) for line in list(lines)[1:]]
    assert task.unit == pytest.approx(np.std(last[:12194]))
    assert task.dt == pytest.approx(1.0)
