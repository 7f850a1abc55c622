"""Text from anywhere, and the order in which training sees it: every window once an epoch, any step at once."""

import gzip
import lzma
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longwave.data import corpus
from longwave.data.loader import Windows, shuffled
from longwave.data.text import Text, read_text
from longwave.data.tokens import Bytes
from longwave.errors import UserError
from longwave.ops.loss import IGNORE
from longwave.tasks.language import Language
from longwave.tasks.masked import MASK, Masked


def text_of(*documents):
    return Text([np.frombuffer(d, np.uint8) for d in documents])


def numbered(n):
    """A text of n bytes whose windows can be told apart."""
    return Text([(np.arange(n - 1, dtype=np.int64) * 2654435761 % 251 + 1).astype(np.uint8)])


# --- the embedded corpus


def test_the_corpus_is_the_same_bytes_twice_in_whatever_order_the_disk_lists_it(monkeypatch):
    once = [part[:].tobytes() for part in corpus.standard_library()]
    walk = os.walk

    def backwards(root):
        for folder, below, files in walk(root):
            below.reverse()
            yield folder, below, files[::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert [part[:].tobytes() for part in corpus.standard_library()] == once
    assert len(once[0]) > 5e6
    assert 0.02 < len(once[1]) / len(once[0]) < 0.1


def test_the_corpus_leaves_out_tests_and_splits_by_file():
    root = Path(os.__file__).parent
    train, *others = corpus.standard_library()
    files = [Path(folder, name).relative_to(root) for folder, name in corpus._sources(root)]
    assert Path("os.py") in files
    assert not [f for f in files if {"test", "tests", "idlelib", "site-packages"} & set(f.parts)]
    valid, test = ({d.tobytes() for d in part.documents if len(d) > 1000} for part in others)
    assert valid and test
    assert not valid & test
    assert not (valid | test) & {d.tobytes() for d in train.documents}


# --- text from files


@pytest.mark.parametrize("where", ["notes.txt", ".", "*.txt", "**/*.txt", "my 'own' notes"])
def test_text_from_a_file_a_folder_and_a_pattern(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "my 'own' notes"
    odd.mkdir()
    (odd / "b.txt").write_text("zwei")
    (tmp_path / "notes.txt").write_text("eins")
    for hidden in (".git/objects/pack", ".notes.txt.swp"):
        (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / hidden).write_bytes(b"\0\1")
    (tmp_path / "empty.txt").touch()
    expected = {"notes.txt": b"eins\0", "*.txt": b"eins\0", "my 'own' notes": b"zwei\0"}
    assert read_text(where)[:].tobytes() == expected.get(where, b"zwei\0eins\0")


def test_what_is_no_text_is_said_to_be_none(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"text\0more")
    for where, words in [
        (tmp_path / "empty", "is empty"),
        (tmp_path / "binary", "is binary, not text: byte 4 is zero"),
        (tmp_path / "nowhere", "no text at"),
        (tmp_path / "*.md", "no text at"),
        ("", "no text at ''"),
        ("/dev/null", "is empty"),
    ]:
        with pytest.raises(UserError, match=words):
            read_text(str(where))


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_unreadable_files_are_named(closed):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies below a folder that nobody else may enter
        Path(folder).chmod(0o755 if closed == "file" else 0o700)
        secret = Path(folder) / "secret.txt"
        secret.write_text("text")
        secret.chmod(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(UserError, match=r"cannot read .*secret\.txt: permission denied"):
                read_text(str(secret))
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("task", [Language, Masked])
def test_text_shorter_than_a_context_is_refused(task, tmp_path):
    (tmp_path / "short").write_text("x" * 300)
    for context in (16, 299, 10**12):
        with pytest.raises(UserError, match=f"too few for a context of {context}: give more text or a smaller"):
            task(context, 2, 0, data=str(tmp_path / "short"))
    assert task(1, 2, 0, data=str(tmp_path / "short")).batch(0)[0].shape == (2, 1)
    with pytest.raises(UserError, match="text of the embedded corpus has"):
        task(10**12, 1, 0, data=None)


@given(documents=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6), data=st.data())
def test_a_text_is_its_documents_each_with_an_end(documents, data):
    text, whole = text_of(*documents), b"\0".join([*documents, b""])
    assert len(text) == len(whole)
    a, b = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    assert text[a:b].tobytes() == whole[a:b]
    train, valid, test = (part[:].tobytes() for part in text.split(0.3))
    held = int(len(whole) * 0.3)
    rest = whole[: len(whole) - 2 * held].removesuffix(b"\0")
    assert train == (rest + b"\0" if rest else b"")
    assert valid.strip(b"\0") == whole[len(whole) - held :].strip(b"\0")
    assert test.strip(b"\0") == whole[len(whole) - 2 * held : len(whole) - held].strip(b"\0")


# --- the order


@given(n=st.integers(1, 5000), seed=st.integers(0, 2**63), epoch=st.integers(0, 2**40))
def test_the_order_is_a_permutation(n, seed, epoch):
    i = np.arange(n)
    assert np.array_equal(np.sort(shuffled(i, n, (seed, epoch))), i)


@given(
    n=st.integers(2, 400),
    size=st.integers(1, 30),
    batch=st.integers(1, 50),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
)
def test_every_window_once_an_epoch(n, size, batch, seed, epoch):
    text = numbered(n)
    if n < size:
        with pytest.raises(UserError, match="shorter than one window"):
            Windows(text, size, batch, seed)
        return
    windows = Windows(text, size, batch, seed)
    first, last = epoch * windows.count, (epoch + 1) * windows.count  # places of this epoch
    steps = range(first // batch, -(-last // batch))
    rows = np.concatenate([windows.at(step) for step in steps])[first - steps[0] * batch :][: windows.count]
    whole, seen = text[:], sorted(rows.tolist())
    grids = [
        whole[start : start + windows.count * size].reshape(-1, size) for start in range(n - windows.count * size + 1)
    ]
    assert any(sorted(grid.tolist()) == seen for grid in grids), "no offset explains the windows of this epoch"
    assert windows.count >= max(1, n // size - 1)


def test_the_order_depends_on_the_seed_and_the_epoch_alone():
    text = numbered(5000)
    at = Windows(text, 10, 8, seed=1).at
    assert np.array_equal(at(7), Windows(text, 10, 8, seed=1).at(7))
    assert not np.array_equal(at(7), Windows(text, 10, 8, seed=2).at(7))
    assert not np.array_equal(at(0), at(Windows(text, 10, 8, seed=1).count // 8 + 1))
    together = np.concatenate([Windows(text, 10, 4, seed=1).at(step) for step in (14, 15)])
    assert np.array_equal(at(7), together)  # what accumulation relies on


def test_any_step_is_found_at_once():
    windows = Windows(numbered(5000), 10, 8, seed=0)
    began = time.perf_counter()
    rows = windows.at(10**15)
    assert time.perf_counter() - began < 0.1
    assert rows.shape == (8, 10)
    assert Windows(numbered(20), 10, 64, seed=0).at(3).shape == (64, 10)  # a batch of many epochs


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_file_of_ten_gigabytes_stays_on_disk(tmp_path):
    file = tmp_path / "large.txt"
    with file.open("wb") as out:
        out.write(b"All work and no play. " * 100_000)
        out.truncate(10 * 2**30)
    before = resident()
    task = Language(255, 16, 0, data=str(file))
    about = task.describe()
    for step in range(20):
        task.batch(step)
    assert about["bytes"] > 10 * 2**30 - 2**20
    assert resident() - before < 64 * 2**20
    with file.open("r+b") as out:
        out.write(b"Some work")
    assert Language(255, 16, 0, data=str(file)).describe() != about


@pytest.mark.parametrize("place", [0, 3000, 99_999])
def test_a_changed_byte_is_noticed(place, tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"abcdefghij" * 10_000)
    before = Language(9, 2, 0, data=str(file)).describe()
    assert Language(19, 3, 1, data=str(file)).describe() == before
    raw = bytearray(file.read_bytes())
    raw[place] = 33
    file.write_bytes(raw)
    assert Language(9, 2, 0, data=str(file)).describe() != before


def test_relative_paths_still_lead_there_from_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("x" * 500)
    monkeypatch.chdir(tmp_path)
    assert Language(9, 2, 0, data="text").describe()["options"]["data"] == str(tmp_path / "text")


# --- tasks


class Uniform:
    """Every byte has the same probability; remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def parameters(self):
        return iter([torch.zeros(1)])

    def loss(self, tokens, target, reduction):
        self.asked.append((tokens, target))
        losses = torch.where(target != IGNORE, float(np.log(256)), 0.0)
        return losses if reduction == "none" else losses.sum()


@pytest.mark.parametrize(("context", "n"), [(1, 40), (2, 41), (7, 100), (8, 100), (9, 300), (40000, 40001)])
def test_validation_judges_every_byte_once_with_what_came_before(context, n):
    task = Language.__new__(Language)
    task.context, task.valid = context, numbered(n)
    model = Uniform()
    assert task.validate(model)["bits_per_byte"] == pytest.approx(8)
    whole, judged = task.valid[:].tolist(), []
    for tokens, target in model.asked:
        for row, goal in zip(tokens.tolist(), target.tolist(), strict=True):
            first = next(i for i, t in enumerate(goal) if t != IGNORE)
            judged += [t for t in goal if t != IGNORE]
            at = len(judged) - sum(t != IGNORE for t in goal) + 1  # of the row's first judged byte in the text
            assert row[: first + 1] == whole[at - 1 - first : at]  # right up to the byte before it
            assert first + 1 >= min(at, context // 2)
    assert judged == whole[1:]


def test_the_baselines_are_those_of_the_compressors(tmp_path):
    (tmp_path / "text").write_bytes(b"the same again and again. " * 1000)
    task = Language(9, 2, 0, data=str(tmp_path / "text"))
    raw = task.valid[:].tobytes()
    assert task.baselines() == {
        "gzip -9": 8 * len(gzip.compress(raw, 9)) / len(raw),
        "xz -9": 8 * len(lzma.compress(raw, preset=9)) / len(raw),
    }


def test_masked_bytes_are_hidden_as_devlin_says(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(1, 251)) * 2000)
    task = Masked(250, 400, 0, data=str(tmp_path / "text"))
    shown, target = task.batch(3)
    assert torch.equal(shown, task.batch(3)[0])
    chosen = target != IGNORE
    assert chosen.double().mean() == pytest.approx(0.15, abs=0.01)
    original = torch.from_numpy(task.windows.at(3))
    assert torch.equal(torch.where(chosen, target, original), original)
    assert torch.equal(shown[~chosen], original[~chosen])
    assert (shown[chosen] == MASK).double().mean() == pytest.approx(0.8, abs=0.02)
    assert (shown[chosen] == original[chosen]).double().mean() == pytest.approx(0.1, abs=0.02)


# --- bytes


@given(text=st.text(max_size=40))
def test_bytes_and_back(text):
    tokens = Bytes()
    assert tokens.decode(tokens.encode(text)) == text
    stream = tokens.decoder()
    pieces = [stream.add(token) for token in tokens.encode(text)]
    assert "".join(pieces) + stream.finish() == text
    assert all(len(piece) <= 1 for piece in pieces)


@given(raw=st.binary(max_size=40))
def test_any_bytes_stream_as_they_decode_whole(raw):
    tokens = Bytes()
    stream = tokens.decoder()
    assert "".join(map(stream.add, raw)) + stream.finish() == tokens.decode(raw)


def test_what_a_terminal_hands_over_that_is_no_utf8_is_bytes_too():
    assert Bytes().encode(os.fsdecode(b"caf\xe9")) == list(b"caf\xe9")
