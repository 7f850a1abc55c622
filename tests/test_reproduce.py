"""The tables of the literature: their averages, a model for every cell, and cells that are trained once."""

import json

import pytest
import torch

from longwave import models
from longwave.cli import main
from longwave.compare import reproduce
from longwave.compare.settings import COLUMNS, FULL, ROWS, sizes
from longwave.train.plan import Plan

TABLES = reproduce.tables()


def test_averages_are_those_of_the_tables():
    within = {"lra": 0.011, "glue": 0.07}  # printed with two decimals (BigBird's cut off), and with one
    for name, close in within.items():
        table = TABLES[name]
        for row, printed in table.averages.items():
            assert table.average(table.rows[row]) == pytest.approx(printed, abs=close)
    assert TABLES["lra"].average([1.0, None]) is None  # of what is not complete there is none
    assert TABLES["pixels"].average([1.0, 2.0, 3.0]) is None


def test_every_row_and_column_has_a_setting():
    assert {name: len(table.rows) for name, table in TABLES.items()} == {
        "lra": 9, "speech": 10, "pixels": 13, "translation": 7, "glue": 4}  # fmt: skip
    for name, table in TABLES.items():
        assert list(ROWS[name]) == list(table.rows) and list(COLUMNS[name]) == table.columns
        assert all(len(scores) == len(table.columns) for scores in table.rows.values())
        assert all(row.setting in FULL for row in ROWS[name].values())


class Sounds:
    """What a task of sounds says of itself."""

    preset = "classifier"

    def fits(self):
        return {"vocab": None, "d_input": 1, "n_classes": 10, "head": "classify"}


@pytest.mark.parametrize("budget", ["laptop", "full"])
@pytest.mark.parametrize("table", ["lra", "pixels", "speech"])
def test_a_model_for_every_cell(table, budget):
    for name, row in ROWS[table].items():
        for column in COLUMNS[table]:
            plan = Plan(context=1024)
            spec = reproduce.build(row, sizes(row, column, budget), Sounds(), plan, budget)
            with torch.device("meta"):
                model = models.create(spec)
            assert model.n_parameters > 1000, name


def test_a_cell_is_trained_once(tmp_path, capsys):
    words = ["reproduce", "pixels", "--row", "lstm,s4", "--column", "sMNIST", "--steps", "2", "--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if "sMNIST" in line}
    assert "98.9" in rows["LSTM"] and "99.63" in rows["S4"]
    assert "scikit-learn's digits, not MNIST" in out
    kept = json.loads((tmp_path / "laptop.json").read_text())["pixels"]
    assert set(kept) == {"LSTM", "S4"} and 0 <= kept["S4"]["sMNIST"] <= 100
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/result.json")}
    assert main(words) == 0
    assert len(before) == 2 and before == {file: file.stat().st_mtime_ns for file in before}


def test_pass_and_fail(monkeypatch):
    cell = reproduce.Cell(TABLES["pixels"], "LSTM", "sMNIST", [], "accuracy", "")
    for ours, said in [([99.0, 97.0], "pass"), ([97.8], "FAIL"), ([], "not run")]:
        monkeypatch.setattr(reproduce.Cell, "scores", lambda self, done, ours=ours: ours)
        assert cell.verdict({}, "full") == said
    monkeypatch.setattr(reproduce.Cell, "scores", lambda self, done: [80.0])
    for reference, said in [({}, "no reference"), ({"sMNIST": 84.9}, "pass"), ({"sMNIST": 85.1}, "FAIL")]:
        monkeypatch.setattr(reproduce, "_references", lambda r=reference: {"pixels": {"LSTM": r}})
        assert cell.verdict({}, "laptop").startswith(said)


def test_what_cannot_be_run_says_why(capsys, tmp_path):
    assert main(["reproduce", "pixels", "--row", "S4", "--budget", "full", "--out", str(tmp_path)]) == 0
    assert "--data is needed: a folder of MNIST's IDX files" in capsys.readouterr().out
    for words, said in [(["pixls"], "pixels"), (["pixels", "--row", "S5"], "'S4'"), (["lra", "--column", "x"], "Text")]:
        assert main(["reproduce", *words]) == 2
        assert said in capsys.readouterr().err


def test_cells_fit_their_tasks():
    """Where a task's twin is made at once, so are all models of its column, as far as their presets are there."""
    for name, columns in {
        "lra": ["ListOps", "Image"],
        "pixels": ["sMNIST", "sCIFAR"],
        "translation": ["EN-DE"],
    }.items():
        found = reproduce.cells(
            TABLES[name], "laptop", rows=list(ROWS[name]), columns=columns, data={}, seeds=1, changes={"steps": 1}
        )
        assert [cell.problem for cell in found if cell.problem and "unknown model" not in cell.problem] == []
