"""From images to texts: any encoder with any decoder, the image read once, looked at where the thing is."""

import io
import itertools
import json

import numpy as np
import pytest
import torch
from PIL import Image

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data.images import flickr8k
from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.generate.beam import beam_search
from longwave.models import preset
from longwave.spec import Spec
from longwave.tasks.captioning import END, START, WORDS
from longwave.tolerance import TOLERANCE, apart

SIZES = dict(channels=1, n_classes=None)
ENCODERS = {
    "resnet18": preset("resnet18", depths=(1, 1), width=4, small=True, **SIZES),
    "resnet50": preset("resnet50", depths=(1,), width=2, **SIZES),
    "vit": preset("vit", size=8, patch=4, d_model=8, n_layers=1, n_heads=2, **SIZES),
    "a recurrence": Spec("image_model", d_model=8, size=8, patch=2, pool="mean", blocks=[Spec("gru")], **SIZES),
}
DECODERS = {
    "show_attend_tell": [Spec("show_attend_tell", d_memory=8)],
    "additive": [Spec("additive", d_memory=8)],
    "transformer": [[Spec("attention"), Spec("cross", d_memory=8), Spec("ffn")]],
    "mamba": [Spec("mamba"), Spec("cross", d_memory=8)],
}


def captioner(encoder, decoder):
    torch.manual_seed(0)
    spec = Spec("seq2seq", d_model=8, vocab=12, encoder=encoder, decoder=decoder, residual="pre")
    return lw.create_model(spec).eval()


@pytest.mark.parametrize(("encoder", "decoder"), list(itertools.product(ENCODERS, DECODERS)))
def test_any_encoder_with_any_decoder(encoder, decoder):
    """Word by word as all at once, and the image is read once."""
    model, calls = captioner(ENCODERS[encoder], DECODERS[decoder]).double(), []
    once = model.encoder.encode
    model.encoder.encode = lambda *given: (calls.append(1), once(*given))[1]
    images, tokens = torch.randn(2, 1, 8, 8).double(), torch.randint(12, (2, 5))
    whole, _ = model(tokens, model.init_state(images))
    calls.clear()
    state, pieces = model.init_state(images), []
    for t in range(5):
        y, state = model(tokens[:, t : t + 1], state)
        pieces.append(y)
    assert len(calls) == 1
    assert apart(torch.cat(pieces, 1), whole) < TOLERANCE[torch.float64]
    best = beam_search(model, tokens[:, :1], model.init_state(images), end=1, max_tokens=4)
    assert len(best) == 2


def test_the_model_looks_at_what_it_names():
    torch.manual_seed(0)
    task = tasks.create("captioning", {}, context=16, batch=32, seed=0)
    model = lw.create_model(task.preset, **{**task.model, **task.fits()})
    optimizer, steps = torch.optim.AdamW(lw.param_groups(model, lr=4e-3, decay=0.01), betas=(0.9, 0.98)), 250
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min((step + 1) / 20, 1 - step / steps)
        optimizer.zero_grad()
        loss, count = task.loss(model, task.batch(step))
        (loss / count).backward()
        optimizer.step()
    with torch.no_grad():
        judged = task.validate(model.eval(), quick=True)
        assert judged["exact"] >= 0.95
        assert judged["attention"] >= 0.8
        images, captions, _ = task.batch(0)
        with lw.recording(model) as tape:
            model(captions[:, :-1], model.init_state(images))
    (maps,) = [t for name, t in tape.items() if name.endswith("/weights")]
    assert maps.shape == (32, 1, captions.shape[1] - 1, 8 * 8)  # a map over the grid for every word
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:3]))
    words = " ".join(WORDS[t] for t in captions[0, 1:-1].tolist())
    assert (int(captions[0, 0]), int(captions[0, -1])) == (START, END)
    assert words.startswith("a ")


def test_looking_everywhere_is_rewarded():
    layer = lw.create_mixer("show_attend_tell", d_model=8, coverage=2.0)
    x, memory, lengths = torch.randn(2, 3, 8), torch.randn(2, 4, 8), torch.tensor([3, 2])
    state = layer.init_state(2, memory, torch.tensor([4, 3]))
    with lw.aux_losses() as terms, lw.recording() as tape:
        layer(x, state, lengths)
    a = tape["weights"][:, 0]
    wanted = 2 * ((1 - a[0].sum(0)).square().sum() + (1 - a[1, :2, :3].sum(0)).square().sum())
    torch.testing.assert_close(terms[0].total, wanted)


def test_widths_must_meet():
    with pytest.raises(UserError, match="the encoder gives 8 features, a mixer of the decoder looks up d_memory=6"):
        captioner(ENCODERS["vit"], [Spec("cross", d_memory=6)])


def test_flickr8k_is_read(shared_data):
    found = flickr8k(str(shared_data / "flickr8k_64px.npz"))
    images, captions = found["valid"]
    assert images.shape[1:] == (64, 64, 3)
    assert len(images) == len(captions)
    assert {len(each) for each in captions} == {5}
    assert found["train"][1][0][0] == "A child in a pink dress is climbing up a set of stairs in an entry way ."


def test_photographs_are_described_at_the_command_line(tmp_path, capsys):
    """Of one colour each, which five people name alike: what is said of unseen ones is what they said."""
    colours, jpegs = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}, []
    names = [name for _ in range(12) for name in colours]
    for name in names:
        made = io.BytesIO()
        Image.new("RGB", (16, 16), colours[name]).save(made, "JPEG")
        jpegs.append(np.frombuffer(made.getvalue(), np.uint8))
    lines = "\n".join(f"all of this is {name} ." for name in names for _ in range(5))
    np.savez(tmp_path / "made.npz", jpeg=np.concatenate(jpegs), offset=np.cumsum([0, *map(len, jpegs)]),
             caption=np.frombuffer(lines.encode(), np.uint8), split=np.repeat([0, 1, 2], [24, 6, 6]))  # fmt: skip
    data, run = ["--data", str(tmp_path / "made.npz"), "--vocab", "300"], str(tmp_path / "run")
    how = ["--steps", "70", "--batch", "12", "--lr", "1e-2", "--warmup", "5", "--validate-every", "70"]
    how += ["--precision", "fp32"]
    assert main(["train", "--task", "captioning", *data, *how, "--width", "4", "--out", run]) == 0
    assert main(["eval", run, "--test", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert judged["bleu"] == pytest.approx(100)
    assert judged["loss"] < 0.2
    kept = tokens_of(tmp_path / "run")
    assert kept.decode(kept.encode("all is red")).strip() == "all is red"
