"""Images value by value: nothing sees what comes later, probabilities add up, and digits are learned."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats
import sklearn.datasets
import torch
import torch.nn.functional as F
from PIL import Image

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.errors import UserError
from longwave.models.pixel_model import LAYERS, DiagonalLSTM, RowLSTM
from longwave.tolerance import TOLERANCE, apart


def tiny(kind, **options):
    sizes = dict(size=4, colours=1, levels=2, d_model=12, n_layers=2, first=3, d_out=30)
    preset, which = ("pixelcnn", {}) if kind == "cnn" else ("pixelrnn", dict(kind=kind))
    return lw.create_model(preset, **{**which, **sizes, **options}).double().eval()


@pytest.mark.parametrize("colours", [1, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_value_depends_on_those_before_it_alone(kind, colours):
    model = tiny(kind, colours=colours, first=7)
    x = torch.randn(8, colours, 4, 4).double().requires_grad_()
    values = model.logits(x)[..., 0].movedim(1, 3).flatten(1)  # in the order of the raster, colour after colour
    slopes = [torch.autograd.grad(each.sum(), x, retain_graph=True)[0].movedim(1, 3).flatten(1) for each in values.T]
    seen = torch.stack([each.abs().sum(0) for each in slopes])
    assert not seen.triu().any()
    if kind == "diagonal":  # and on all of them
        assert seen.tril(-1).ne(0).sum() == len(seen) * (len(seen) - 1) / 2


def cell(gates, c):
    o, f, i, g = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def test_layers_are_those_of_the_paper():
    """Pixel by pixel, as equations 3 of the paper have it."""
    x = torch.randn(1, 6, 3, 4).double()
    row, diagonal = RowLSTM(6, 3, 1).double(), DiagonalLSTM(6, 1).double()
    zero = torch.zeros(6).double()
    for layer in (row, diagonal):
        inputs, weight = layer.input(x)[0], layer.state.weight
        h, c, made = {}, {}, torch.empty(6, 3, 4).double()
        for i, j in itertools.product(range(3), range(4)):
            near = [(i - 1, j - 1), (i - 1, j), (i - 1, j + 1)] if layer is row else [(i - 1, j), (i, j - 1)]
            gates = inputs[:, i, j] + sum(weight[:, :, k] @ h.get(at, zero) for k, at in enumerate(near))
            before = c.get((i - 1, j) if layer is row else (i, j - 1), zero)
            h[i, j], c[i, j] = cell(gates, before)
            made[:, i, j] = h[i, j]
        assert apart(layer(x)[0], made) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("kind", LAYERS)
def test_probabilities_add_up_and_draws_follow_them(kind):
    model = tiny(kind, size=2)
    every = torch.tensor(list(itertools.product(range(2), repeat=4))).view(-1, 1, 2, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
        chances = model.log_prob(every).exp()
        torch.testing.assert_close(chances.sum(), torch.tensor(1.0).double())
        coloured = tiny(kind, size=2, colours=2, d_model=8)
        both = torch.tensor(list(itertools.product(range(2), repeat=8))).view(-1, 2, 2, 2)
        torch.testing.assert_close(coloured.log_prob(both).exp().sum(), torch.tensor(1.0).double())
    generator = torch.Generator().manual_seed(0)
    count = 50_000 if kind == "cnn" else 5_000
    drawn, _ = model.sample(count, generator=generator)
    counted = torch.bincount(drawn.flatten(1) @ torch.tensor([8, 4, 2, 1]), minlength=16)
    assert scipy.stats.chisquare(counted.double(), chances / chances.sum() * count).pvalue > 0.01
    top, below = every[:4, :, :1] * 0, every[:4, :, 1:]
    rest = model.log_prob(below, given=top).exp().detach()
    torch.testing.assert_close(rest, chances[:4] / chances[:4].sum())
    drawn, _ = model.sample(count, given=top[:1], generator=generator)
    counted = torch.bincount(drawn.flatten(1) @ torch.tensor([2, 1]), minlength=4)
    assert scipy.stats.chisquare(counted.double(), rest / rest.sum() * count).pvalue > 0.01


@pytest.mark.parametrize("kind", LAYERS)
def test_digits_are_likelier_than_pixel_by_pixel(kind):
    images = torch.from_numpy(sklearn.datasets.load_digits().images).long()[:, None]
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    held_out, images = images[:300], images[300:]
    counts = 1 + F.one_hot(images, 17).sum(0)
    alone = -(counts / counts.sum(-1, keepdim=True)).log().gather(-1, held_out.movedim(0, -1)).mean()
    model = tiny(kind, size=8, levels=17, d_model=16, n_layers=1, first=5, d_out=32).float()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(50):
        optimizer.zero_grad()
        model.loss(images[torch.randint(len(images), (32,))]).backward()
        optimizer.step()
    with torch.no_grad():
        assert model.loss(held_out) < alone - 0.05
    drawn, _ = model.sample(3)
    assert drawn.shape == (3, 1, 8, 8)
    assert drawn.min() >= 0
    assert drawn.max() <= 16


def test_what_is_no_image_of_the_model_is_told():
    with pytest.raises(UserError, match=r"images of shape \[1, 4, 4\], got \[1, 4, 5\]"):
        tiny("cnn")(torch.zeros(1, 1, 4, 5, dtype=torch.long))
    with pytest.raises(UserError, match="odd"):
        tiny("row", first=4)
    with pytest.raises(UserError, match="twice the colours"):
        tiny("row", colours=3, d_model=9)


def test_digits_are_learnt_and_drawn_at_the_command_line(tmp_path, capsys):
    run, png = str(tmp_path / "run"), tmp_path / "drawn.png"
    tiny = ["--d-model", "16", "--n-layers", "1", "--d-out", "32", "--steps", "100", "--lr", "1e-2"]
    tiny += ["--validate-every", "100", "--warmup", "5"]
    assert main(["train", "--task", "image-density", *tiny, "--out", run]) == 0
    assert main(["eval", run, "--test", "--json"]) == 0
    *_, last = capsys.readouterr().out.strip().splitlines()
    judged = json.loads(last)
    assert judged["bits_per_dimension"] == pytest.approx(judged["loss"] / math.log(2))
    task = tasks.create("image_density", {}, context=1, batch=1, seed=0)
    seen, unseen = (task.scale(torch.from_numpy(part.x)) for part in (task.train, task.unseen))
    counts = 1 + F.one_hot(seen, 16).sum(0)
    alone = -(counts / counts.sum(-1, keepdim=True)).log2().gather(-1, unseen.movedim(0, -1)).mean()
    assert 1 < judged["bits_per_dimension"] < alone
    assert main(["generate", run, "--images", "2", "--seed", "1", "--png", str(png)]) == 0
    model = lw.load(run)
    drawn, _ = model.eval().sample(2, generator=torch.Generator().manual_seed(1))
    seen = torch.from_numpy(np.array(Image.open(png)))
    assert seen.shape == (8, 17)
    assert torch.equal(seen[:, 9:].long(), drawn[1, 0] * 17)
    assert main(["generate", run, "--images", "1", "--seed", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
