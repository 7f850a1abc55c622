"""Images as sequences: published layouts are read right, damaged ones refused, and each pixel is where it should be."""

import gzip
import struct

import numpy as np
import pytest
import torch

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data import images
from longwave.data.examples import POOL, Order
from longwave.tasks._pixels import bit_reversed

RANDOM = np.random.default_rng(0)
PICTURES = RANDOM.integers(0, 256, (50, 28, 28), np.uint8)
CLASSES = RANDOM.integers(0, 10, 50).astype(np.uint8)


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    for name, array in zip(images.IDX, (PICTURES, CLASSES, PICTURES[:20], CLASSES[:20]), strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return folder


def make(name, context=1024, batch=4, seed=0, **options):
    return tasks.create(name, options, context=context, batch=batch, seed=seed)


def test_mnist_is_read_row_by_row_and_scaled_by_training(mnist):
    task = make("mnist", data=str(mnist))
    x, y = task.show(task.unseen, np.arange(20), None)
    everything = PICTURES / 255
    expected = (everything[:20].reshape(20, 784, 1) - everything.mean()) / everything.std()
    np.testing.assert_allclose(x, expected, atol=1e-5)
    assert y.tolist() == CLASSES[:20].tolist()
    assert [len(part) for part in (task.train, task.valid, task.unseen)] == [45, 5, 20]
    assert main(["train", "--task", "mnist", "--data", str(mnist), "--context", "9", "--steps", "1"]) == 2


def test_both_permutations_and_patches(mnist):
    plain, reverse, random, patches = (
        make("mnist", data=str(mnist), **how).unseen.x
        for how in ({}, {"order": "reversed"}, {"order": "random", "permute_seed": 3}, {"patch": 7})
    )
    # bits of 1 read backwards in ten digits are 512, of 2 256, of 3 768
    assert bit_reversed(784)[:6].tolist() == [0, 512, 256, 768, 128, 640]
    assert (reverse[:, 3] == plain[:, 768]).all()
    assert (random == plain[:, np.random.default_rng(3).permutation(784)]).all()
    assert patches.shape == (20, 16, 49)
    assert (patches[0, 5] == PICTURES[0, 7:14, 7:14].ravel()).all()


def test_damaged_and_missing_files_are_refused(mnist, tmp_path):
    with pytest.raises(lw.UserError, match=r"has no train-images-idx3-ubyte, so it is not MNIST.*yann.lecun.com"):
        images.mnist(str(tmp_path))
    (tmp_path / "broken").write_bytes(idx(PICTURES)[:-1])
    with pytest.raises(lw.UserError, match=r"39199 bytes for an array of \[50, 28, 28\]"):
        images._idx(tmp_path / "broken")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    with pytest.raises(lw.UserError, match="must be an npz file of x_train"):
        images.mnist(str(tmp_path / "broken.npz"))


def test_cifar_in_colour_and_grey(tmp_path):
    planes = RANDOM.integers(0, 256, (10, 3, 32, 32), np.uint8)
    records = np.concatenate([np.arange(10, dtype=np.uint8)[:, None], planes.reshape(10, -1)], 1)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).write_bytes(records.tobytes())
    colour, grey = make("cifar", data=str(tmp_path)), make("cifar", data=str(tmp_path), grey=True)
    assert (colour.unseen.x[4, 33] == planes[4, :, 1, 1]).all()
    red, green, blue = planes[4, :, 1, 1].astype(float)
    assert grey.unseen.x[4, 33] == round(0.299 * red + 0.587 * green + 0.114 * blue)
    assert (colour.d_input, grey.d_input) == (3, 1)
    (tmp_path / "test_batch.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(lw.UserError, match="not images of 3073 bytes"):
        make("cifar", data=str(tmp_path))


def test_real_images_are_what_they_are_known_to_be(shared_data):
    x, y, x_test, y_test = images.mnist(str(shared_data / "mnist.npz"))
    assert (len(x), len(x_test)) == (60000, 10000)
    assert x.mean() / 255 == pytest.approx(0.1307, abs=1e-4) and x.std() / 255 == pytest.approx(0.3081, abs=1e-4)
    assert y[:5].tolist() == [5, 0, 4, 1, 9] and y_test[:5].tolist() == [7, 2, 1, 0, 4]


@pytest.mark.parametrize("sizes", [None, np.arange(103) * 7 % 103])
def test_an_epoch_sees_every_example_once(sizes):
    order = Order(103, 5, 1, sizes)
    seen = np.concatenate([order.at(step) for step in range(2 * POOL)])  # 160 places: one epoch and a part of another
    places = np.concatenate([order._drawn(0, 160)])
    assert sorted(places[:103]) == list(range(103))
    assert sorted(seen) == sorted(places)
    if sizes is not None:
        assert all(np.ptp(sizes[order.at(step)]) < 15 for step in range(POOL))


def test_the_model_of_pixels_is_the_s4_of_its_papers(mnist):
    """LayerNorm, S4D with a skip, GELU, Linear, GLU, residual; a mean over time, LayerNorm, Linear."""
    task = make("mnist", data=str(mnist))
    model = lw.create_model("classifier", **{**task.model, "d_model": 8, "n_layers": 2}, **task.fits()).eval()
    x = h = task.batch(0)[0][:, :50]
    with torch.no_grad():
        h = h @ model.embed.weight.T + model.embed.bias
        for block in model.backbone.parts():
            branch = block.parts()[0]
            mixer = branch.mixer
            u = torch.nn.functional.layer_norm(h, (8,))
            A = torch.complex(-mixer.log_damping.exp(), mixer.frequency)
            dt = mixer.log_dt.exp()
            C = torch.view_as_complex(mixer.C) * ((A * dt).exp() - 1) / A
            K = 2 * torch.einsum("dn,dnl->dl", C, ((A * dt)[..., None] * torch.arange(50)).exp()).real
            y = torch.stack([torch.einsum("dl,bld->bd", K[:, : t + 1].flip(1), u[:, : t + 1]) for t in range(50)], 1)
            g = torch.nn.functional.gelu(y + mixer.D * u) @ mixer.out[2].weight.T + mixer.out[2].bias
            h = h + g[..., :8] * g[..., 8:].sigmoid()
        pooled = torch.nn.functional.layer_norm(h.mean(1), (8,))
        expected = pooled @ model.head.out.weight.T + model.head.out.bias
        torch.testing.assert_close(model(x)[0], expected, atol=2e-4, rtol=1e-3)


def test_tied_dropout_drops_whole_channels():
    model = lw.create_model("classifier", n_classes=2, d_input=3, d_model=16, n_layers=1, mixer="gru", dropout=0.5,
                            tied_dropout=True).train()  # fmt: skip
    branch = model.backbone.parts()[0].parts()[0]
    x = torch.randn(4, 9, 16)
    with torch.no_grad():
        changed = (branch(x)[0] - x) != 0
        whole, _ = branch.mixer(branch.norm(x))
    assert (changed.all(1) | ~changed.any(1)).all()
    assert 0.2 < changed.float().mean() < 0.8
    torch.testing.assert_close((branch.eval()(x)[0] - x), whole, atol=1e-5, rtol=1e-5)


def test_digits_train_from_the_command_line(tmp_path, capsys):
    tiny = ["--d-model", "8", "--n-layers", "1", "--steps", "2", "--batch", "8", "--out", str(tmp_path / "run")]
    assert main(["train", "--task", "mnist", "--context", "64", *tiny]) == 0
    assert main(["eval", str(tmp_path / "run"), "--test"]) == 0
    said = capsys.readouterr()
    assert "scikit-learn's digits, not MNIST" in said.err
    assert "accuracy" in said.out
