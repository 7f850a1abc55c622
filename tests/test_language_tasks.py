"""Tasks on sentences and documents: their published files, their metrics, and that a model learns their twins."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch

import longwave as lw
from longwave import tasks
from longwave.data import glue
from longwave.tasks._metrics import METRICS


def make(name, path=None, context=64, batch=16, **options):
    return tasks.create(name, {"data": path and str(path), **options}, context=context, batch=batch, seed=0)


def learn(task, steps, **options):
    torch.manual_seed(0)
    how = {"mixer": "gru", "d_model": 32, "n_layers": 1, **options}
    model = lw.create_model("classifier", **task.fits(), **how)
    task.check(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(steps):
        loss, count = task.loss(model, task.batch(step))
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        return task.test(model.eval())


def test_metrics_are_those_of_scikit_learn_and_scipy():
    random = np.random.default_rng(0)
    said, right = random.integers(2, size=(2, 50)).astype(float)
    a, b = random.integers(6, size=(2, 50)).astype(float)  # many ties
    for name, theirs in [("accuracy", sklearn.metrics.accuracy_score), ("f1", sklearn.metrics.f1_score),
                         ("matthews", sklearn.metrics.matthews_corrcoef)]:  # fmt: skip
        assert METRICS[name](said, right) == pytest.approx(theirs(right, said), abs=1e-12)
    assert METRICS["pearson"](a, b) == pytest.approx(scipy.stats.pearsonr(a, b)[0], abs=1e-12)
    assert METRICS["spearman"](a, b) == pytest.approx(scipy.stats.spearmanr(a, b)[0], abs=1e-12)
    assert METRICS["matthews"](np.ones(4), right[:4]) == METRICS["f1"](np.zeros(4), np.zeros(4)) == 0.0


FILES = {
    "cola": ("{0}\t{1}\t\tThis is {2} \"quoted.", ["0", "1"], ""),
    "sst2": ("it 's {2}\t{1}", ["0", "1"], "sentence\tlabel"),
    "mrpc": ("{1}\t1\t2\tOne {2}\tTwo {2}", ["1", "0"], "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"),
    "qqp": ("{0}\t1\t2\tWhy {2} ?\tHow {2} ?\t{1}", ["0", "1"], "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"),
    "stsb": ("{0}\tmain\ta {2}\tb\t{1}", ["5.000", "1.25"], "index\tgenre\tsentence1\tsentence2\tscore"),
    "mnli": ("{0}\tA {2}\tB\tneutral\t{1}", ["neutral", "contradiction", "-"],
             "index\tsentence1\tsentence2\tlabel1\tgold_label"),
    "qnli": ("{0}\tWho {2} ?\tHe.\t{1}", ["entailment", "not_entailment"], "index\tquestion\tsentence\tlabel"),
    "rte": ("{0}\ta {2}\tb\t{1}", ["not_entailment", "entailment"], "index\tsentence1\tsentence2\tlabel"),
    "wnli": ("{0}\ta {2}\tb\t{1}", ["0", "1"], "index\tsentence1\tsentence2\tlabel"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_published_layout_of_glue(tmp_path, name):
    line, labels, header = FILES[name]
    part = glue.PARTS[name]
    home = tmp_path / part.folder
    home.mkdir()
    lines = [line.format(i, labels[i % len(labels)], f"word{i}") for i in range(24)]
    for split in ("train", *part.tests):
        (home / f"{split}.tsv").write_text("\n".join([*([header] if header else []), *lines]) + "\n")
    task = make("glue", tmp_path, part=name)
    kept = [label for i in range(24) if (label := labels[i % len(labels)]) != "-"]
    right = [part.classes.index(k) if part.classes else float(k) / 5 for k in kept]
    assert task.unseen.y.flatten().tolist() == pytest.approx(right)
    texts = [bytes(c if c < 256 else 10 for c in row).decode() for row in task.unseen.rows(np.arange(2))]
    assert all("word" in text and text.count("\n") == len(part.text) - 1 for text in texts)
    if name == "cola":
        assert texts[0] == 'This is word0 "quoted.'
    (home / "train.tsv").write_text(
        "\n".join([*([header] if header else []), lines[0], lines[1].replace(labels[1], "x")])
    )
    with pytest.raises(lw.UserError, match=r"line [23]: .* is 'x', not"):
        make("glue", tmp_path, part=name)
    with pytest.raises(lw.UserError, match=r"there is no .*train\.tsv: gluebenchmark"):
        make("glue", tmp_path / "nowhere", part=name)


def test_the_twins_of_glue_are_learnt():
    found = learn(make("glue", context=48), 60)
    assert found["accuracy"] > 0.9
    scores = make("glue", part="stsb")
    assert scores.fits()["head"] == "regress" and scores.metric == "spearman"
    answers = torch.nn.Linear(1, 1)
    answers.forward = lambda x, *_: (torch.rand(len(x), 1), None)
    assert set(scores.test(answers)) == {"loss", "spearman", "pearson"}
    answers.forward = lambda x, *_: (torch.rand(len(x), 3), None)
    assert {"accuracy", "accuracy_mm"} <= set(make("glue", part="mnli").test(answers))


def test_a_tagger_learns_the_language_made_here():
    task = make("tagging", context=64, batch=32)
    x, target, lengths = task.batch(0)
    assert len(set(lengths.tolist())) > 1
    text = bytes(x[0, : lengths[0]].tolist()).decode()
    assert [i for i, t in enumerate(target[0].tolist()) if t >= 0 and i < lengths[0]] == [
        i for i, c in enumerate(text) if i + 1 == len(text) or text[i + 1] == " "]  # fmt: skip
    assert learn(task, 150, bidirectional=True)["accuracy"] >= 0.99


def test_columns_of_words_and_tags(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.txt").write_text("-DOCSTART- -X- O\n\nJosé NNP B-PER\nruns VB O\n\n\nYes\tUH\n", "utf-8")
    task = make("tagging", tmp_path)
    assert task.tags == ["B-PER", "O", "UH"] and len(task.train) == 2
    row = task.train.rows(np.array([0]))[0]
    assert [(i, t) for i, t in enumerate(row[:, 1].tolist()) if t >= 0] == [(4, 0), (9, 1)]
    (tmp_path / "test.txt").write_text("a NEW\n")
    with pytest.raises(lw.UserError, match=r"the tag 'NEW' of 'a' .test. does not occur in training"):
        make("tagging", tmp_path)
    (tmp_path / "dev.txt").write_text("a A\nb\n")
    with pytest.raises(lw.UserError, match=r"dev\.txt, line 2: 'b' has no tag behind it"):
        make("tagging", tmp_path)
    (tmp_path / "dev.txt").unlink()
    with pytest.raises(lw.UserError, match=r"there is no valid\.txt in"):
        make("tagging", tmp_path)


def test_pairs_of_documents_are_read_alone_and_compared(tmp_path):
    for split in ("train", "eval", "test"):
        rows = ["1.0\tP1\tP2\tfirst text\tother", '0.0\tP1\tP3\t"quoted\ttext"\tthis one is longer']
        (tmp_path / f"new_aan_pairs.{split}.tsv").write_text("\n".join(rows) + "\n")
    task = make("retrieval", tmp_path, context=12)
    x, target, lengths = task.show(task.train, np.arange(2), None)
    assert target.tolist() == [1, 0] and lengths.tolist() == [[10, 5], [11, 12]]
    assert bytes(x[1, 0, :11].tolist()) == b"quoted\ttext" and bytes(x[1, 1].tolist()) == b"this one is "
    model = lw.create_model("classifier", **task.fits(), mixer="attention", d_model=8, n_layers=1).double().eval()
    answer = model(x, None, lengths)[0]
    for i in range(2):  # whatever stands behind a document, or beside it
        for other in (torch.randint(256, (2, 2, 40)), torch.zeros(2, 2, 12, dtype=torch.long)):
            other[i, :, :12] = torch.where(torch.arange(12) < lengths[i, :, None], x[i], other[i, :, :12])
            assert torch.allclose(model(other, None, lengths)[0][i], answer[i], atol=1e-12)
    wanted = torch.nn.functional.cross_entropy(answer, target)
    for chunk in (None, 4):
        assert torch.allclose(model.loss(x, target, lengths, chunk=chunk), wanted, atol=1e-9)
    with pytest.raises(lw.UserError, match="no state"):
        model.init_state(1)
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("2\ta\tb\tc\td\n")
    with pytest.raises(lw.UserError, match="line 1: the label is '2', not 0 or 1"):
        make("retrieval", tmp_path)


def test_documents_made_here_are_told_apart():
    first = make("retrieval", context=100)
    assert abs(float(first.train.y.mean()) - 0.5) < 0.01
    said = {text.split()[0] for text in (bytes(row) for row in first.texts.rows(np.arange(10)))}
    assert len(said) > 5
