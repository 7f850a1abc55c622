"""What probes count and measure, beside numbers worked out by hand."""

import pytest
import torch

from longwave import mixers
from longwave.cli import main
from longwave.errors import UserError
from longwave.probe import count_paths
from longwave.probe.paths import chain, table_rows


def test_the_table_of_paths():
    """Vaswani et al. 2017, Table 1, for 64 tokens, 3 taps, 5 tokens seen: ceil(log_3 64) = 4 and ceil(63 / 4) = 16."""
    rows = {row.name: row for row in table_rows(64, 3, 5)}
    longest = {"attention": 1, "recurrence": 64, "convolution": 4, "restricted attention": 16}
    assert {name: row.counted.longest for name, row in rows.items()} == longest
    assert all(row.holds for row in rows.values())
    assert rows["attention"].counted.products == 3  # queries, keys and values; the attention; the output
    assert rows["recurrence"].counted.products == 64
    assert [name for name, row in rows.items() if row.counted.sequential] == ["recurrence"]


def test_chains_grow_by_what_a_step_does():
    rnn = mixers.create("rnn", 8).double()
    assert chain(rnn, 40)[0] - chain(rnn, 30)[0] == 10 * 3  # product, sum, tanh
    conv = mixers.create("conv", 8).double()
    with torch.no_grad():
        assert chain(conv, 40) == chain(conv, 30)


def test_paths_of_other_mixers():
    s4, gla = count_paths("s4", 32), count_paths("gla", 32)
    assert (s4.sequential, s4.longest) == (False, 1)  # a convolution by the FFT
    assert (gla.sequential, gla.longest) == (True, 32)  # chunks, one after another
    assert count_paths("fnet", 32).longest == 1  # both ways
    with pytest.raises(UserError, match="do not connect"):
        count_paths("ffn", 8)


def test_profile_paths(tmp_path, capsys):
    assert main(["profile", "paths", "--tokens", "16", "--mixers", "gru", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines() if " O(" in line] == ["pass"] * 4
    assert (tmp_path / "paths.png").stat().st_size > 1000
    assert main(["profile", "paths", "--window", "1"]) == 2
    assert "2 or more" in capsys.readouterr().err
