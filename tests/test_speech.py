"""Speech and text as sequences: published layouts, MFCC against another implementation, and half the rate."""

import wave

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch

import longwave as lw
from longwave import tasks
from longwave.data import audio, labelled_text


def make(name, context=800, batch=4, seed=0, **options):
    return tasks.create(name, options, context=context, batch=batch, seed=seed)


def test_mfcc_is_that_of_another_implementation():
    sound = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    found = audio.mfcc(sound)
    assert found.shape == (161, 20)
    _, _, spectrum = scipy.signal.stft(sound, window="hann", nperseg=200, noverlap=100, boundary="even", padded=False)
    power = np.abs(spectrum.T * 100) ** 2  # scipy divides by the window's sum
    hertz = np.linspace(0, 8000, 101)
    points = 700 * (np.exp(np.linspace(0, 1127 * np.log(1 + 8000 / 700), 66) / 1127) - 1)
    filters = np.stack([np.interp(hertz, points[i : i + 3], [0, 1, 0]) for i in range(64)])
    expected = scipy.fft.dct(np.log(power @ filters.T + 1e-6), norm="ortho")[:, :20]
    assert np.abs(found - expected).max() < 1e-3 * max(1, np.abs(expected).max())


def test_words_in_folders_are_read_and_split(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for i in range(20):
            with wave.open(str(tmp_path / name / f"{i}.wav"), "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", ""))
                file.writeframes((1000 * np.sin(np.arange(400 + i))).astype("<i2").tobytes())
    task = make("speech", data=str(tmp_path))
    assert [len(part) for part in (task.train, task.valid, task.unseen)] == [28, 6, 6]
    assert float(task.unseen.x.std()) == pytest.approx(1, abs=0.05)
    assert make("speech", data=str(tmp_path), features="mfcc").d_input == 20
    with pytest.raises(lw.UserError, match=r"at least 2 words.*download\.tensorflow"):
        make("speech", data=str(tmp_path / "one"))


def test_half_the_rate_is_a_step_twice_as_long():
    """A slow sine, every other sample of it, and dt = 2: the same answer; with dt left alone another one."""
    model = lw.create_model("classifier", n_classes=3, d_input=1, d_model=8, n_layers=1, mixer="s4d").double().eval()
    slow = torch.sin(torch.arange(2000.0, dtype=torch.float64) / 50)[None, :, None]
    with torch.no_grad():
        whole, half, wrong = model(slow)[0], model(slow[:, ::2], None, None, 2.0)[0], model(slow[:, ::2])[0]
    assert (half - whole).abs().max() < 0.1 * (wrong - whole).abs().max()
    with torch.no_grad():
        tiny = lw.create_model("classifier", n_classes=10, d_input=1, d_model=4, n_layers=1)
        found = make("speech", batch=32).test(tiny)
    assert {"accuracy", "accuracy_half_rate", "loss"} == found.keys()


def test_a_bandlimit_silences_what_is_too_fast():
    mixer = lw.create_mixer("s4d", d_model=4, bandlimit=0.5, dt_min=0.1, dt_max=0.1)
    A = torch.complex(-mixer.log_damping.exp(), mixer.frequency) * mixer.log_dt.exp()
    assert 0 < (A.imag.abs() <= 0.5 * np.pi).float().mean() < 1
    x = torch.randn(2, 50, 4)
    silent = mixer(x)[0]
    mixer.bandlimit = None
    with torch.no_grad():
        mixer.C[A.imag.abs() > 0.5 * np.pi] = 0
    torch.testing.assert_close(mixer(x)[0], silent, atol=1e-5, rtol=1e-4)


def test_texts_in_folders_and_docstrings(tmp_path):
    for part in ("train", "test"):
        for name in ("neg", "pos", "unsup"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(10):
                (tmp_path / part / name / f"{i}_1.txt").write_text(f"{name} number {i}, that is all there is")
    task = make("text", context=12, data=str(tmp_path))
    x, y, lengths = task.show(task.unseen, np.array([0, 19]), None)
    assert [bytes(row.tolist()).decode() for row in x] == ["neg number 0", "pos number 9"]
    assert y.tolist() == [0, 1] and lengths.tolist() == [12, 12]
    with pytest.raises(lw.UserError, match="texts of 0 classes"):
        labelled_text.read(str(tmp_path / "train"), 9)
    assert make("text").n_classes > 5


def test_the_reviews_are_those_of_imdb(shared_data):
    first = next(labelled_text._table(shared_data / "imdb_test.tsv.xz"))
    assert first[0] in {"0", "1", "neg", "pos"} and len(first[1]) > 20
