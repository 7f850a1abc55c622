"""Generated tasks: what is asked can be answered from what is shown, and from nothing less."""

import gzip
import statistics

import numpy as np
import pytest
import torch
from scipy import ndimage

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data import listops, pathfinder
from longwave.ops.loss import IGNORE

EASY = {  # small enough to be learnt within seconds
    "adding": {},
    "arithmetic": {"digits": 1},
    "copying": {"items": 1, "symbols": 2},
    "delay": {"delay": 1},
    "recall": {"pairs": 1, "symbols": 2},
    "selective_copy": {"items": 1, "symbols": 2},
}
SMALL = {  # to be made within a second
    "delay": {"delay": 9},
    "listops": {"examples": 96, "shortest": 4, "longest": 60, "depth": 4},
    "pathfinder": {"size": 32, "examples": 40},
}
CONTEXT = {"pathfinder": 1024}


def make(name, context=64, batch=5, seed=0, **options):
    return tasks.create(name, options, context=context, batch=batch, seed=seed)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.mark.parametrize("name", tasks.registry.names())
def test_every_task_keeps_the_protocol(name):
    context = CONTEXT.get(name, 64)
    task = make(name, context=context, **SMALL.get(name, {}))
    assert isinstance(task, tasks.Task)
    described = task.describe()
    assert described["task"] == name
    again = tasks.create(name, described["options"], context=context, batch=5, seed=0)
    for a, b in zip(task.batch(7), again.batch(7), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(task.batch(7)[0], task.batch(8)[0])
    assert set(task.fits()) == set(task.decides)
    assert task.better in ("higher", "lower")


@pytest.mark.parametrize("name", EASY)
def test_a_model_learns_something_of_it(name):
    task = make(name, context={"arithmetic": 12, "tones": 32}.get(name, 8), batch=32, **EASY[name])
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
    assert after["loss"] < 0.8 * before["loss"]
    assert tested.keys() == after.keys() and task.metric in tested
    assert 0 < abs(tested["loss"] - after["loss"]) < 0.2 * before["loss"]  # other examples of the same kind
    if "accuracy" in after and name != "arithmetic":
        assert after["accuracy"] > 0.9


def stack_machine(words):
    """An interpreter of ListOps that shares nothing with the generator."""
    stack = []
    for word in words:
        if word != "]":
            stack.append(word if word[0] == "[" else int(word))
            continue
        arguments = []
        while not isinstance(stack[-1], str):
            arguments.append(stack.pop())
        answer = {"[MIN": min, "[MAX": max, "[MED": statistics.median, "[SM": lambda v: sum(v) % 10}[stack.pop()]
        assert len(arguments) > 1
        stack.append(int(answer(arguments)))
    (value,) = stack
    return value


def test_values_of_listops_are_those_of_another_interpreter(shared_data, monkeypatch):
    monkeypatch.setattr("longwave.tasks.listops.ROOTS", 2000)
    task = make("listops", context=100, examples=1000, shortest=3, longest=100, depth=6, arguments=5)
    texts = [[listops.WORDS[t] for t in row] for row in task.train.rows(np.arange(1000))]
    assert all(3 < len(text) < 100 for text in texts)
    assert len({" ".join(text) for text in texts}) == 1000
    assert [stack_machine(text) for text in texts] == task.train.y.tolist()
    with gzip.open(shared_data / "listops" / "short.test.tsv.gz", "rt") as lines:  # the interpreter itself
        assert all(stack_machine(text.split()) == int(value) for value, text in (line.split("\t") for line in lines))
    with pytest.raises(lw.UserError, match="there are only"):
        make("listops", examples=5000, shortest=1, longest=5)


def test_published_files_of_listops_and_pathfinder(tmp_path, shared_data):
    for name in ("train", "val", "test"):
        (tmp_path / f"basic_{name}.tsv").write_text("Source\tTarget\n( ( ( [MAX 4 ) ( ( [SM 9 ) 3 ) ] ) ) ]\t4\n7\t7\n")
    task = make("listops", data=str(tmp_path))
    assert [[listops.WORDS[t] for t in row] for row in task.unseen.rows(np.arange(2))] == [
        ["[MAX", "4", "[SM", "9", "3", "]", "]"], ["7"]]  # fmt: skip
    assert task.unseen.y.tolist() == [4, 7]
    (tmp_path / "basic_val.tsv").write_text("[MAX 4 x ]\t4\n")
    with pytest.raises(lw.UserError, match=r"val\.tsv, line 1: 'x' is no word of ListOps"):
        make("listops", data=str(tmp_path))
    short = make("listops", context=200, data=str(shared_data / "listops" / "short"))
    assert [len(part) for part in (short.train, short.valid, short.unseen)] == [20000, 2000, 2000]
    with pytest.raises(lw.UserError, match="there are several"):
        make("listops", data=str(shared_data / "listops"))

    image = pytest.importorskip("PIL.Image")
    (tmp_path / "imgs" / "0").mkdir(parents=True)
    (tmp_path / "metadata").mkdir()
    for i in range(20):
        image.fromarray(np.full((4, 4), 10 * i, np.uint8)).save(tmp_path / "imgs" / "0" / f"sample_{i}.png")
    lines = [f"imgs/0 sample_{i}.png {i} {i % 2} 1.8 6 2.0 5 1.5 2" for i in range(20)]
    (tmp_path / "metadata" / "0.npy").write_text("\n".join(lines) + "\n")
    task = make("pathfinder", data=str(tmp_path))
    parts = (task.train, task.valid, task.unseen)
    assert [len(part) for part in parts] == [16, 2, 2]
    assert all(part.x[i, 0, 0] / 10 % 2 == part.y[i] for part in parts for i in range(len(part)))
    made = make("pathfinder", context=1024, data=str(shared_data / "pathfinder" / "path32_test.npz"))
    assert made.batch(0)[0].shape == (5, 1024, 1)


def test_dots_of_pathfinder_are_joined_where_a_flood_says_so():
    lines, dots, label = pathfinder.pictures(np.random.default_rng(1), 60, 32, 7, 4)
    assert label.sum() == 30
    scale = 8
    images = pathfinder.draw(lines, dots, 32, scale)
    for image, (a, b), joined in zip(images, (dots * scale).astype(int), label, strict=True):
        ink = ndimage.binary_dilation(image > 100, iterations=2)
        areas, _ = ndimage.label(ink, np.ones((3, 3)))
        assert (areas[tuple(a)] == areas[tuple(b)]) == bool(joined)
        assert areas[tuple(a)] > 0 and areas[tuple(b)] > 0
    apart = np.linalg.norm(dots[:, 0] - dots[:, 1], axis=-1)
    assert abs(apart[label == 1].mean() - apart[label == 0].mean()) < 3


def test_sums_and_products_are_those_of_python():
    for operation, sign in (("add", int.__add__), ("multiply", int.__mul__)):
        for places in ("none", "aligned", "random"):
            task = make("arithmetic", context=128, operation=operation, places=places, digits=4)
            tokens, target = (t.tolist() for t in task.batch(3))
            for row, goal in zip(tokens, target, strict=True):
                digits = [t for t in [*row, 12] if t < 13]
                cut, end = digits.index(10), digits.index(11)
                a, b, c = (int("".join(map(str, part[::-1])) or 0)
                           for part in (digits[:cut], digits[cut + 1 : end], digits[end + 1 : -1]))  # fmt: skip
                assert sign(a, b) == c
                said = [t for t in goal if t != IGNORE]
                assert said == [*digits[end + 1 : -1], 12]
                if places == "aligned":
                    assert row[0] == 13 and row[2 * cut + 1] == 13  # units of both numbers


def test_sorting_parity_induction_adding_and_one_question():
    tokens, target = make("sorting", context=20).batch(0)
    assert torch.equal(target[:, 10:], tokens[:, :10].sort().values)
    assert torch.equal(tokens[:, 11:], target[:, 10:-1])
    bits, odd = make("parity").batch(0)
    assert torch.equal(odd[:, -1], bits.sum(1) % 2)
    tokens, target = make("induction").batch(0)
    for row, goal in zip(tokens.tolist(), target[:, -1].tolist(), strict=True):
        assert row[row.index(16) + 1] == goal and row[-1] == 16 and row.count(16) == 2
    x, total = make("adding", batch=500).batch(0)
    assert torch.allclose((x[..., 0] * x[..., 1]).sum(1), total[:, 0])
    assert ((total - 1) ** 2).mean() == pytest.approx(1 / 6, abs=0.03)
    assert ((make("recall", queries=1).batch(0)[1] != IGNORE).sum(1) == 1).all()


def test_reconstruction_asks_for_the_signal_itself():
    signal, points = make("reconstruction", context=63, points=3).batch(0)
    assert torch.equal(points, signal[:, [0, 31, 62], 0])


def test_copying_asks_for_the_symbols_in_order():
    tokens, target = make("copying", context=40, items=6, symbols=9).batch(0)
    assert torch.equal(target[:, -6:], tokens[:, :6])
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
    assert not past[:, :30].any()  # what came before the signal is not in it: nobody could know it
    assert float(signal.var()) == pytest.approx(1, abs=0.15)
    spectrum = torch.fft.rfft(signal[..., 0]).abs().mean(0)
    assert float(spectrum[200 // 20 + 2 :].max()) < 1e-3 * float(spectrum.max())


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
