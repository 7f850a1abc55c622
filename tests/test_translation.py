"""Translation: what is read, in what order, and that a saved run turns text into text."""

import gzip
import json

import numpy as np
import pytest
import sacrebleu
import torch

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data.parallel import Buckets, continuations, english, german, read_pairs
from longwave.data.tokens import read_pieces
from longwave.generate.translate import translate
from longwave.generate.unknown import align, replace_unknown
from longwave.parts.dropout import dropout

TINY = ["--d-model", "32", "--n-layers", "1", "--n-heads", "2", "--d-hidden", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Multi30k's layout, one file packed."""
    where = tmp_path_factory.mktemp("pairs")
    words = [("a dog runs", "ein Hund rennt"), ("two dogs", "zwei Hunde"), ("a man", "ein Mann"), ("", "")]
    for name, times in (("train", 9), ("val", 2), ("test_2016_flickr", 1)):
        source, target = zip(*words * times, strict=True)
        (where / f"{name}.en").write_text("\n".join(source) + "\n")
        (where / f"{name}.de.gz").write_bytes(gzip.compress(("\n".join(target) + "\n").encode()))
    return where


def test_a_folder_is_read_as_it_is_published(folder):
    parts = read_pairs(str(folder), "en", "de")
    assert {name: len(part) for name, part in parts.items()} == {"train": 36, "val": 8, "test_2016_flickr": 4}
    assert (parts["val"].source[1], parts["val"].target[1]) == ("two dogs", "zwei Hunde")
    assert read_pairs(str(folder), "de", "en")["val"].target[1] == "two dogs"


def test_real_pairs(shared_data):
    parts = read_pairs(str(shared_data / "multi30k"), "en", "de")
    assert (len(parts["train"]), len(parts["val"]), len(parts["test_2016_flickr"])) == (29000, 1014, 1000)


def test_what_cannot_be_read_is_told(folder, tmp_path):
    with pytest.raises(lw.UserError, match=r"no train\.en and train\.fr in"):
        read_pairs(str(folder), "en", "fr")
    (tmp_path / "train.en").write_text("one\ntwo\n")
    (tmp_path / "train.de").write_text("eins\n")
    with pytest.raises(lw.UserError, match=r"has 2 lines, train\.de 1"):
        read_pairs(str(tmp_path), "en", "de")
    (tmp_path / "train.de").write_bytes(b"\xff\n\xfe\n")
    with pytest.raises(lw.UserError, match=r"train\.de: it is not UTF-8"):
        read_pairs(str(tmp_path), "en", "de")


def test_numbers_are_said_as_people_say_them():
    said = {0: ("zero", "null"), 21: ("twenty-one", "einundzwanzig"), 101: ("one hundred and one", "einhunderteins"),
            17_312: ("seventeen thousand three hundred and twelve", "siebzehntausenddreihundertzwölf")}  # fmt: skip
    for n, (en, de) in said.items():
        assert (english(n), german(n)) == (en, de)


def test_a_pair_is_as_many_predictions_as_its_target_has_tokens():
    cat, chat = ["I", "like", "the", "green", "cat", "."], ["J'aime", "le", "chat", "vert", "."]
    pairs = continuations(cat, chat, "[BOS]", "[EOS]")
    assert len(pairs) == 6
    assert [said for _, said in pairs] == [*chat, "[EOS]"]
    assert " ".join(pairs[0][0]) == "I like the green cat . [BOS]"
    assert " ".join(pairs[5][0]) == "I like the green cat . [BOS] J'aime le chat vert ."


def test_unknown_words_are_those_that_were_looked_at():
    """By hand: the name was looked at most for the first unknown word, the town for the second; pads are NaN."""
    source, said = ["Miss", "Ito", "left", "Kyoto"], ["Mademoiselle", "<unk>", "quitte", "<unk>", "<unk>"]
    looked = torch.tensor([[0.9, 0.1, 0.0, 0.0, 0.0], [0.3, 0.6, 0.1, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0],
                           [0.1, 0.1, 0.1, 0.3, 0.4], [0.0, 0.0, 0.6, 0.4, 0.0]])  # fmt: skip
    looked[:, 4] = torch.nan
    assert replace_unknown(said, source, looked) == ["Mademoiselle", "Ito", "quitte", "Kyoto", "left"]
    assert replace_unknown(said, source, looked, dictionary={"left": "parti"})[-2:] == ["Kyoto", "parti"]
    with pytest.raises(lw.UserError, match="5 words said of 4"):
        replace_unknown(said, source, looked[:, :3])


def test_an_alignment_is_of_the_words_said():
    """Weights a word said, which sum to one over the source's own length, beside other rows as alone."""
    model = lw.create_model("deep_att", d_model=8, encoder_levels=2, decoder_levels=2, vocab=9, source_vocab=9).eval()
    source, target = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[1, 2, 8, 2], [1, 2, 2, 2]])
    looked = align(model, source, target, torch.tensor([3, 2]))
    assert looked.shape == (2, 3, 3)
    assert looked[1, :, 2].isnan().all()
    torch.testing.assert_close(looked.nan_to_num(0).sum(-1), torch.ones(2, 3))
    one = align(model, source[1:, :2], target[1:])
    torch.testing.assert_close(one[0], looked[1, :, :2])


def test_a_batch_is_of_one_length_and_an_epoch_sees_every_row_once():
    lengths = np.random.default_rng(0).integers(3, 40, 500)
    buckets = Buckets(lengths, budget=120, seed=1)
    seen = []
    for epoch in range(2):
        rows = [buckets.at(epoch * len(buckets) + i) for i in range(len(buckets))]
        assert sorted(np.concatenate(rows)) == list(range(500))
        assert all(len(some) * lengths[some].max() <= 120 for some in rows)
        assert np.mean([np.ptp(lengths[some]) for some in rows]) < 1
        seen.append(rows)
    again = Buckets(lengths, budget=120, seed=1)
    assert np.array_equal(again.at(len(buckets) + 3), seen[1][3])
    assert {tuple(sorted(some)) for some in seen[0]} != {tuple(sorted(some)) for some in seen[1]}


def test_dropout_drops_as_many_as_it_says_and_keeps_the_mean():
    x = torch.ones(400_001, requires_grad=True)
    y = dropout(x, 0.3, True)
    y.sum().backward()
    assert float((y == 0).float().mean()) == pytest.approx(0.3, abs=4e-3)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.7), rtol=1e-4, atol=0)
    assert torch.equal(x.grad, y.detach())
    assert dropout(x, 0.3, False) is x
    with torch.no_grad():
        pairs = dropout(torch.ones(4, 100_000), 0.5, True) > 0  # numbers that share their bits are independent
    np.testing.assert_allclose(np.corrcoef(pairs.view(-1, 4).T.numpy()), np.eye(4), atol=0.02)


def test_a_run_translates_text(folder, tmp_path, capsys):
    run = tmp_path / "run"
    how = ["--task", "translation", "--data", str(folder), "--vocab", "300", "--context", "24", "--validate-every", "9",
           "--steps", "4"]  # fmt: skip
    assert main(["train", *how, *TINY, "--out", str(run)]) == 0
    assert main(["train", *how[:-1], "2", *TINY, "--out", str(tmp_path / "half")]) == 0
    assert main(["train", "--resume", str(tmp_path / "half"), "--steps", "4"]) == 0
    files = [(each / "tokenizer.json").read_text() for each in (run, tmp_path / "half")]
    assert files[0] == files[1]
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert set(metrics) == {"loss", "bleu"}
    assert main(["translate", str(run), "a dog", "--max-tokens", "5", "--beams", "2"]) == 0
    said = capsys.readouterr().out.removesuffix("\n")
    model = lw.load(run)
    model.home = run
    assert translate(model, "a dog", max_tokens=5, beams=2) == said
    assert translate(model, ["a dog", "two dogs run"], max_tokens=5, beams=2)[0] == said  # whoever is beside it
    assert main(["generate", str(run), "a dog"]) == 2
    assert "longwave translate does" in capsys.readouterr().err


def test_bleu_is_that_of_sacrebleu(folder):
    task = tasks.create("translation", {"data": str(folder), "vocab": 300}, context=24, batch=4, seed=0)
    torch.manual_seed(0)
    model = lw.create_model("transformer", **task.fits(), d_model=32, n_layers=1, n_heads=2, d_hidden=64, dropout=0.0)
    task.check(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(60):
        optimizer.zero_grad()
        loss, count = task.loss(model, task.batch(step))
        (loss / count).backward()
        optimizer.step()
    with torch.no_grad():
        found = task.test(model)
    part = task.parts["test_2016_flickr"]
    said = translate(model, part.source, tokens=task.tokens)
    assert said[:2] == part.target[:2]
    assert found.keys() == {"loss", "bleu"}
    assert found["bleu"] == sacrebleu.corpus_bleu(said, [part.target]).score


def test_its_tokenizer_can_be_given(folder, tmp_path):
    first = tasks.create("translation", {"data": str(folder), "vocab": 290}, context=24, batch=4, seed=0)
    first.keep(tmp_path)
    given = {"data": str(folder), "tokenizer": str(tmp_path / "tokenizer.json")}
    again = tasks.create("translation", given, context=24, batch=4, seed=0)
    assert again.tokens.json == first.tokens.json == read_pieces(tmp_path / "tokenizer.json").json
    for a, b in zip(first.batch(5), again.batch(5), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(lw.UserError, match="as short as --context 2"):
        tasks.create("translation", {"data": str(folder)}, context=2, batch=4, seed=0)
    with pytest.raises(lw.UserError, match="an encoder and a decoder, not a LanguageModel"):
        first.check(lw.create_model("lm", mixer="gru", d_model=8, n_layers=1))
