"""What probes count and measure, beside numbers worked out by hand."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from longwave import mixers, ops
from longwave.cli import main
from longwave.compare.flops import Counting
from longwave.errors import UserError
from longwave.probe import count_paths, entropy_by_temperature, fit_complexity, hull_distance, order_blindness
from longwave.probe.complexity import kept
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


def test_counted_exponents_are_the_published_ones():
    found = list(fit_complexity(timed=False))
    wrong = [(each.layer, each.quantity, each.against, each.exponent) for each in found if each.holds is False]
    assert wrong == []
    by_length = {(each.layer, each.quantity): each.exponent for each in found if each.against == "length"}
    for layer in ("recurrence", "s4", "convolution", "restricted attention"):
        assert by_length[layer, "a token"] == pytest.approx(0, abs=1e-9)  # however long the past


def test_flops_are_those_that_torch_counts():
    """Where torch's counter sees everything: float64, in which it takes cells apart, and attention by its weights."""
    for name in (
        "attention",
        "lstm",
        "gru",
        "rnn",
        "conv",
        "long_conv",
        "s4",
        "mamba",
        "gla",
        "ffn",
        "rwkv4",
        "linformer",
    ):
        mixer = mixers.create(name, 16)
        with torch.no_grad(), ops.use("torch"), Counting() as ours:
            mixer(torch.randn(2, 24, 16))
        with torch.no_grad(), ops.use("torch"), FlopCounterMode(display=False) as theirs:
            mixer.double()
            with ops.use("torch.weights" if name in ("attention", "linformer") else "torch"):
                mixer(torch.randn(2, 24, 16, dtype=torch.float64))
        assert ours.products == pytest.approx(theirs.get_total_flops(), rel=0.02), name
        assert ours.count >= ours.products


def test_activations_kept_are_counted_once():
    """A tanh keeps its output, a product its input: the same tensor, of 3 x 5 floats."""
    kept_twice = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(5, 2))
    x = torch.randn(3, 5, requires_grad=True)
    assert kept(lambda x: (kept_twice(x), None), x, kept_twice.parameters()) == 3 * 5 * 4


def test_reproduce_measures_what_is_not_trained(capsys):
    assert main(["reproduce", "paths", "--row", "convolution"]) == 0
    said = capsys.readouterr().out
    assert "O(log_k(n))" in said and "recurrence" not in said
    assert main(["profile", "complexity", "--layers", "recurrence", "--no-timed"]) == 0
    assert "FAIL" not in capsys.readouterr().out
    assert main(["reproduce", "complexty"]) == 2
    assert "did you mean 'complexity'" in capsys.readouterr().err


def test_attention_is_blind_to_order_without_positions():
    x = torch.randn(2, 12, 8, dtype=torch.float64)
    for position in ("none", "rope", "alibi", "t5"):
        layer = mixers.create("attention", 8, causal=False, position=position).double()
        if position == "t5":
            torch.nn.init.normal_(layer.table)
        assert (order_blindness(layer, x) <= 1e-6) == (position == "none")
    with pytest.raises(UserError, match="causal"):
        order_blindness(mixers.create("attention", 8), x)


def test_temperature_flattens_and_keeps_the_order():
    sharp, plain, flat = entropy_by_temperature([0.1, 1, 10], draws=100)
    assert sharp.same_order and plain.same_order and flat.same_order
    assert bool((sharp.entropy < plain.entropy).all() and (plain.entropy < flat.entropy).all())
    assert float(entropy_by_temperature([1e6], draws=2, tokens=16)[0].entropy.max()) == pytest.approx(math.log(16))


def test_outputs_lie_in_the_hull_of_the_values():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = hull_distance(torch.tensor([[0.5, 0.9], [1.0, 1.0], [1.25, 0.5], [-3.0, 9.0]]), square)
    assert found.tolist() == pytest.approx([0, 0, 0.25, 8], abs=1e-9)
    q, k, v = torch.randn(3, 1, 20, 1, 3, dtype=torch.float64).unbind(0)
    y = ops.attention(q, k, v)[0, :, 0]
    assert hull_distance(y, v[0, :, 0]).max() <= 1e-9
    assert hull_distance(y + q[0, :, 0], v[0, :, 0]).max() > 0.1  # beside a residual stream coefficients sum to two


def test_profile_what_attention_is(tmp_path, capsys):
    call = ["profile", "gradient", "--tokens", "9", "--mixers", "rnn,attention", "--out", str(tmp_path)]
    for words in (call, ["profile", "order"], ["profile", "temperature"], ["profile", "hull", "--tokens", "8"]):
        assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count("blind") == 1 and said.count("sees order") == 3
    assert "temperature: yes" in said and "0 of 8" in said
    assert (tmp_path / "gradient.png").stat().st_size > 1000
    assert main(["profile", "temperature", "--temperatures", "1,-2"]) == 2
