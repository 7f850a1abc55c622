"""Labelled recordings: a folder of wav files a word, the spoken digits, or sounds made here; and their features:
MFCC, or the log-mel spectrogram of Whisper.

A recording is float32 of unit deviation, whatever its loudness was.
"""

import math
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longwave.data.examples import Examples, ragged
from longwave.errors import UserError

SC10 = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
FETCH = "speech_commands_v0.02.tar.gz is at download.tensorflow.org/data; unpack it"
Floats = NDArray[np.float32]
Recordings = tuple[Examples, Examples, Examples, tuple[str, ...]]  # training, validation, test, names of the classes


def read(where: str, longest: int) -> Recordings:
    """From a folder with a folder of wav files a word (of Speech Commands the ten words of SC10), or from fsdd.npz."""
    path = Path(where).expanduser()
    return _digits(path, longest) if path.is_file() else _words(path, longest)


def chirps(longest: int) -> Recordings:
    """Ten kinds of sounds: two tones that glide, each from one pitch to another; 400, 100 and 200 of them."""
    random = np.random.default_rng(0)
    glides = np.random.default_rng(1).uniform(0.02, 0.2, (10, 2, 2))
    rows, y = [], random.integers(10, size=700)
    for which in y:
        n = min(longest, int(random.integers(400, 800)))
        pitch = glides[which, :, :1] + (glides[which, :, 1:] - glides[which, :, :1]) * np.linspace(0, 1, n)
        tones = np.sin(2 * np.pi * (pitch.cumsum(1) + random.random((2, 1)))).sum(0)
        rows.append(level(tones * np.hanning(n) + 0.1 * random.normal(size=n)))
    every = ragged(rows, y)
    parts = (every.take(np.arange(*ends)) for ends in ((0, 400), (400, 500), (500, 700)))
    return (*parts, tuple(f"chirp {i}" for i in range(10)))  # type: ignore[return-value]


def level(sound: NDArray[np.floating]) -> Floats:
    return (sound / (sound.std() + 1e-6)).astype(np.float32)


def loudest(sound: Floats, longest: int) -> Floats:
    """The part of so many samples that has most energy."""
    if len(sound) <= longest:
        return sound
    energy = np.concatenate([[0], np.cumsum(sound.astype(np.float64) ** 2)])
    start = int(np.argmax(energy[longest:] - energy[:-longest]))
    return sound[start : start + longest]


def mfcc(sound: Floats, rate: int = 16000, count: int = 20, mels: int = 64, window: int = 200) -> Floats:
    """Mel-frequency cepstral coefficients [frames, count], one frame each half window: power spectrum, triangular
    filters evenly spaced on the mel scale (O'Shaughnessy's), logarithm, orthonormal cosine transform."""
    half = window // 2
    framed = np.lib.stride_tricks.sliding_window_view(np.pad(sound, half, mode="reflect"), window)[::half]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(framed * hann, axis=1)) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), mels + 2) / 2595) - 1)
    bins = np.linspace(0, rate / 2, half + 1)[:, None]
    rising, falling = (bins - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - bins) / np.diff(edges)[1:]
    heard = np.log(power @ np.maximum(0, np.minimum(rising, falling)) + 1e-6)
    k, m = np.arange(count), np.arange(mels)[:, None]
    cosines = np.cos(np.pi / mels * (m + 0.5) * k) * np.where(k == 0, np.sqrt(1 / mels), np.sqrt(2 / mels))
    return (heard @ cosines).astype(np.float32)


def log_mel(sound: Floats, rate: int = 16000, mels: int = 80) -> Floats:
    """Whisper's features [frames, mels] of samples from -1 to 1: a frame each 10 ms, of 25 ms; the power in bands of
    equal area that are evenly spaced on Slaney's mel scale; logarithm to base 10, the loudest 8 of it, shifted and
    halved twice (Radford et al. 2023, section 2.2, and its published code)."""
    window, hop = rate // 40, rate // 100
    padded = np.pad(sound, window // 2, mode="reflect").astype(np.float64)
    framed = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop][: max(1, len(sound) // hop)]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(framed * hann, axis=1)) ** 2
    bins = np.linspace(0, rate / 2, window // 2 + 1)[:, None]
    edges = _slaney(np.linspace(0, 15 + 27 * np.log(rate / 2000) / np.log(6.4), mels + 2))
    rising, falling = (bins - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - bins) / np.diff(edges)[1:]
    bands = np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])
    heard = np.log10(np.maximum(power @ bands, 1e-10))
    return ((np.maximum(heard, heard.max() - 8) + 4) / 4).astype(np.float32)


def _slaney(mel: NDArray[np.floating]) -> NDArray[np.floating]:
    """Its frequency: even steps of 66.7 Hz up to 1000 Hz, then 27 to each factor of 6.4."""
    return np.where(mel < 15, 200 / 3 * mel, 1000 * 6.4 ** ((mel - 15) / 27))


def resample(sound: Floats, rate: int, wanted: int) -> Floats:
    """The same sound at another rate: its spectrum, cut or padded. Behind the sound lies silence."""
    if rate == wanted or not len(sound):
        return sound
    whole = rate // math.gcd(rate, wanted)
    n = -(-(len(sound) + rate // 10) // whole) * whole
    m = n * wanted // rate
    spectrum = np.fft.rfft(sound.astype(np.float64), n)[: m // 2 + 1]
    return (np.fft.irfft(spectrum, m)[: -(-len(sound) * wanted // rate)] * (m / n)).astype(np.float32)


def read_wav(file: Path) -> tuple[Floats, int]:
    """The samples as they are in a wav of 16 bits, the mean of its channels, and how many there are a second."""
    try:
        with wave.open(str(file)) as opened:
            if opened.getsampwidth() != 2:
                raise UserError(f"{file} has samples of {opened.getsampwidth()} bytes; there are readers for 2")
            channels, rate = opened.getnchannels(), opened.getframerate()
            data = opened.readframes(opened.getnframes())
    except FileNotFoundError as problem:
        raise UserError(f"there is no file {file}") from problem
    except (wave.Error, EOFError, OSError) as problem:
        why = str(problem) or "it ends before its sound begins"
        raise UserError(f"{file} is not a wav of 16-bit samples, or is damaged: {why}") from problem
    frames = np.frombuffer(data[: len(data) // (2 * channels) * 2 * channels], "<i2")
    return frames.reshape(-1, channels).mean(1).astype(np.float32), rate


def _digits(file: Path, longest: int) -> Recordings:
    try:
        with np.load(file, allow_pickle=False) as held:
            audio, offset, label, index = (held[name] for name in ("audio", "offset", "label", "index"))
    except (OSError, ValueError, KeyError, EOFError) as problem:
        raise UserError(f"{file} must be an npz file of audio, offset, label, index: {problem}") from problem
    ends = zip(offset[:-1].tolist(), offset[1:].tolist(), strict=True)
    rows = [loudest(level(audio[a:b].astype(np.float32)), longest) for a, b in ends]
    every = ragged(rows, label.astype(np.int64))
    test, valid = (np.flatnonzero(where) for where in (index < 5, (index >= 5) & (index < 7)))
    train = np.flatnonzero(index >= 7)
    return every.take(train), every.take(valid), every.take(test), tuple("0123456789")


def _words(folder: Path, longest: int) -> Recordings:
    """70 % of each word's files for training, 15 % for validation, 15 % for test, in an order by seed."""
    there = sorted(each.name for each in folder.glob("*") if each.is_dir() and any(each.glob("*.wav")))
    names = tuple(sorted(SC10)) if set(SC10) <= set(there) else tuple(there)
    if len(names) < 2:
        raise UserError(f"{folder} must hold a folder of wav files for each of at least 2 words. For Speech Commands: "
                        f"{FETCH}")  # fmt: skip
    parts: tuple[list[tuple[Floats, int]], ...] = ([], [], [])
    for number, name in enumerate(names):
        files = sorted((folder / name).glob("*.wav"))
        order = np.random.default_rng(number).permutation(len(files))
        cuts = np.split(order, [int(0.7 * len(files)), int(0.85 * len(files))])
        for part, some in zip(parts, cuts, strict=True):
            part += [(loudest(level(read_wav(files[i])[0]), longest), number) for i in some]
    if not all(parts):
        raise UserError(f"{folder} has too few wav files to split them: there must be 7 a word")
    train, valid, test = (ragged([x for x, _ in part], np.array([y for _, y in part])) for part in parts)
    return train, valid, test, names
