"""ELMo: words from characters, a language model of both directions, its layers mixed, a classifier above."""

import pytest
import torch
import torch.nn.functional as F

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.compare.reproduce import build
from longwave.compare.settings import ROWS, sizes
from longwave.data.words import characters
from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.parts.characters import Characters
from longwave.spec import Spec
from longwave.train.plan import Plan

SENTENCES = [["the", "cat", "sat", "on", "the", "mat"], ["go"], ["an", "extraordinarily", "long", "wörd"]]
TINY = dict(d_model=6, d_cell=10, filters=64, vocab=40)


def test_words_become_their_characters_between_marks():
    x, lengths = characters(SENTENCES)
    assert lengths.tolist() == [8, 3, 6]
    assert x[0, 0, :4].tolist() == [257, 259, 258, 0]
    assert x[1, 2, :4].tolist() == [257, 260, 258, 0]
    assert x[1, 1].tolist() == [257, 1 + ord("g"), 1 + ord("o"), 258, *[0] * (x.shape[2] - 4)]
    assert not x[1, 3:].any()


def test_a_word_is_its_convolutions_by_hand():
    part = Characters(5, n_chars=260, d_char=4, filters=((1, 3), (3, 2)), highways=1).double()
    x, _ = characters([["cat"]])
    found = []
    for conv in part.convs:
        n = conv.kernel_size[0]
        e = torch.cat([part.table.weight[x[0, 1] - 1], torch.zeros(n - 1, 4)])
        windows = [(conv.weight * e[t : t + n].T).sum((1, 2)) + conv.bias for t in range(5)]
        found.append(torch.stack(windows).amax(0).relu())
    e = torch.cat(found)
    (high,) = part.highways
    gate = torch.sigmoid(high.gate(e))
    wanted = part.out(gate * high.change(e).relu() + (1 - gate) * e)
    torch.testing.assert_close(part(x)[0, 1], wanted)
    torch.testing.assert_close(part(F.pad(x, (0, 7)))[0, 1], wanted)  # a word may have more room


def test_each_side_is_a_language_model_that_does_not_see_what_it_guesses():
    model = lw.create_model("elmo", **TINY).double().eval()
    x, lengths = characters(SENTENCES)
    words = torch.randint(40, x.shape[:2])
    logits, _ = model(x, None, lengths)
    other = x.clone()
    other[0, 4] = x[0, 1]
    changed, _ = model(other, None, lengths)
    same = (changed == logits).all(-1)[0]
    assert same[:, 0].tolist() == [True] * 4 + [False] * 4  # the word after is guessed from what came before
    assert same[:, 1].tolist() == [False] * 5 + [True] * 3

    lost = []
    for b, n in enumerate(lengths.tolist()):
        alone, _ = model(x[b : b + 1, :n])
        torch.testing.assert_close(alone[0], logits[b, :n])
        lost += [-alone[0, t, 0].log_softmax(-1)[words[b, t + 1]] for t in range(n - 1)]
        lost += [-alone[0, t, 1].log_softmax(-1)[words[b, t - 1]] for t in range(1, n)]
    torch.testing.assert_close(model.loss(x, words, lengths), torch.stack(lost).mean())
    assert not (model.loss(x, torch.full_like(words, IGNORE), lengths)).any()
    with pytest.raises(UserError, match="reads words as characters"):
        model(words)
    with pytest.raises(UserError, match="has no state"):
        model(x, object())


def test_features_are_layers_mixed_by_weights_whose_sum_is_one():
    model = lw.create_model("elmo", words=False, **TINY).eval()
    with torch.no_grad():
        model.mix.scores.copy_(torch.tensor([1.0, -2.0, 0.5]))
        model.mix.gamma.fill_(3.0)
    assert model.mix.weights.sum().item() == pytest.approx(1.0)
    tokens = torch.randint(40, (1, 5))
    e = model.embed(tokens)
    first, second = (block.parts()[0].mixer for block in model.ahead.parts())
    one = first(e)[0]
    two = one + second(one)[0]  # beside a residual, the first is not
    s = torch.tensor([1.0, -2.0, 0.5]).softmax(0)
    torch.testing.assert_close(model.hidden(tokens)[0][..., :6], 3 * (s[0] * e + s[1] * one + s[2] * two))
    first, second = (block.parts()[0].mixer for block in model.back.parts())
    one = first(e.flip(1))[0]
    two = one + second(one)[0]
    back = (s[0] * e.flip(1) + s[1] * one + s[2] * two).flip(1)
    torch.testing.assert_close(model.hidden(tokens)[0][..., 6:], 3 * back)


def test_a_classifier_on_what_was_pretrained(tmp_path):
    """A word's class is in a character: what the language model learned is kept, ragged batches are rows alone."""
    lm = lw.create_model("elmo", **TINY, dropout=0.0)
    x, lengths = characters(SENTENCES)
    words = torch.randint(40, x.shape[:2])
    optimizer = torch.optim.AdamW(lw.param_groups(lm, lr=1e-2, decay=0.0))
    losses = []
    for _ in range(20):
        losses.append(lm.loss(x, words, lengths))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]
    lw.save(lm, tmp_path)

    model = lw.load(tmp_path, head=Spec("classify", n_classes=2, pool="attention"))
    torch.testing.assert_close(model.below.hidden(x, None, lengths), lm.hidden(x, None, lengths))
    answer, _ = model(x, None, lengths)
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(model(x[b : b + 1, :n])[0], answer[b : b + 1], rtol=1e-4, atol=1e-5)
    model.train().loss(x, torch.tensor([0, 1, 0]), lengths).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(UserError, match="there is no state"):
        model.init_state(3)


def test_it_is_trained_on_bytes_at_the_command_line(tmp_path, capsys):
    (tmp_path / "text").write_text("a text that goes on and on. " * 90)
    run = ["train", "--task", "both-ways", "--data", str(tmp_path / "text"), "--context", "16", "--batch", "2",
           "--steps", "2", "--d-model", "6", "--d-cell", "8"]  # fmt: skip
    assert main([*run, "--out", str(tmp_path / "run")]) == 0
    assert "bits per byte" in capsys.readouterr().out
    model = lw.load(tmp_path / "run", head=Spec("classify", n_classes=2, pool="attention"))
    assert model(torch.randint(256, (2, 9)))[0].shape == (2, 2)
    assert main([*run, "--chunk", "4", "--out", str(tmp_path / "cut")]) == 2
    assert "cannot be cut" in capsys.readouterr().err


def test_the_row_of_glue_is_built_for_its_task():
    task = tasks.create("glue", {"part": "stsb"}, context=32, batch=2, seed=0)
    row = ROWS["glue"]["BiLSTM+ELMo+Attn"]
    spec = build(row, sizes(row, "STS-B", "laptop"), task, Plan(), "laptop")
    model = lw.create_model(spec)
    task.check(model)
    lost, count = task.loss(model, task.batch(0))
    assert lost.isfinite() and count == 2


def test_attentive_pooling_is_a_softmax_over_tokens_and_so_far():
    model = lw.create_model("classifier", n_classes=3, d_input=4, d_model=8, n_layers=1, mixer="gru")
    spec = model.spec.but(head=Spec("pooled", pool="attention"))
    model = lw.create_model(spec).double().eval()
    x, lengths = torch.randn(3, 9, 4, dtype=torch.float64), torch.tensor([9, 4, 0])
    h, _ = model.hidden(x)
    scores = (h @ model.head.pool.score.weight[0]).masked_fill(torch.arange(9) >= lengths[:, None], -torch.inf)
    wanted = (scores[:2].softmax(1)[..., None] * h[:2]).sum(1)
    whole, _ = model(x, None, lengths)
    torch.testing.assert_close(whole, torch.cat([wanted, torch.zeros(1, 8, dtype=torch.float64)]))
    state = model.init_state(3)
    for start, stop in ((0, 3), (3, 4), (4, 9)):
        answer, state = model(x[:, start:stop], state, (lengths - start).clamp(0, stop - start))
    torch.testing.assert_close(answer, whole)
