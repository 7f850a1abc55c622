"""Runs that begin from a model: whole or by adapters, resumed bit for bit, refused where model and task do not fit."""

import json

import pytest
import torch

import longwave as lw
from longwave.cli import main
from longwave.files import read_tensors, write_tensors
from longwave.models.weights.byte_tokenizer import write_bytes
from longwave.train.checkpoint import read_progress

FEW = ["--context", "16", "--batch", "2", "--validate-every", "2", "--warmup", "0"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model of bytes with a tokenizer beside it, and a text."""
    home = tmp_path_factory.mktemp("tuning")
    torch.manual_seed(3)
    lw.save(lw.create_model("lm", mixer="attention", d_model=8, n_layers=2), home / "base")
    write_bytes(home / "base")
    (home / "text").write_text("a text that goes on and on. " * 90)
    return home


def train(base, out, *more):
    return main(["train", "--from", str(base / "base"), "--data", str(base / "text"), *FEW, *more, "--out", str(out)])


def weights(file):
    return {name: t for name, t in read_tensors(file, kind="model")[0].items() if not name.startswith("training/")}


def test_a_run_begins_from_a_model(base, tmp_path):
    assert train(base, tmp_path / "run", "--steps", "2", "--lr", "1e-12") == 0
    began, ended = weights(base / "base/model.safetensors"), weights(tmp_path / "run/last.safetensors")
    assert began.keys() == ended.keys()
    for name, t in began.items():
        torch.testing.assert_close(ended[name], t, rtol=0, atol=1e-9)
    assert (tmp_path / "run/tokenizer.json").read_bytes() == (base / "base/tokenizer.json").read_bytes()
    assert read_progress(tmp_path / "run").start == str(base / "base")


@pytest.mark.parametrize("lora", [[], ["--lora", "2", "--lora-targets", "qkv,out"]], ids=["whole", "adapters"])
def test_it_goes_on_bit_for_bit(base, tmp_path, lora, capsys):
    plan = [*lora, "--schedule", "constant"]
    assert train(base, tmp_path / "whole", "--steps", "3", *plan) == 0
    assert train(base, tmp_path / "half", "--steps", "1", *plan) == 0
    if lora:
        assert main(["train", "--resume", str(tmp_path / "half"), "--steps", "3", "--lora", "4"]) == 2
        assert "has lora 2, it cannot go on with 4" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "half"), "--steps", "3"]) == 0
    one, other = (read_tensors(tmp_path / each / "last.safetensors", kind="model")[0] for each in ("whole", "half"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_adapters_alone_learn_and_are_merged_at_every_save(base, tmp_path, capsys):
    assert train(base, tmp_path / "run", "--steps", "3", "--lora", "2", "--lora-targets", "qkv") == 0
    assert "2 of 8 layers are adapted (25 %): qkv" in capsys.readouterr().err
    began, ended = weights(base / "base/model.safetensors"), weights(tmp_path / "run/last.safetensors")
    assert {n for n in began if not torch.equal(began[n], ended[n])} == {n for n in began if n.endswith("qkv.weight")}
    for name in (n for n in began if n.endswith("qkv.weight")):
        assert torch.linalg.matrix_rank((ended[name] - began[name]).double(), rtol=1e-4) == 2
    tuned = lw.load(tmp_path / "run")
    assert tuned.state_dict().keys() == began.keys()
    assert train(base, tmp_path / "no", "--steps", "3", "--lora", "2", "--lora-targets", "qvk") == 2
    assert "no layer of this model is called 'qvk': did you mean 'qkv'" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_an_adapted_model_is_saved_as_a_plain_one(tmp_path):
    model = lw.create_model("lm", mixer="gru", d_model=8, n_layers=1).eval()
    for adapter in lw.lora(model, rank=2).layers.values():
        torch.nn.init.normal_(adapter.B)
    lw.save(model, tmp_path / "saved")
    tokens = torch.randint(256, (1, 9))
    with torch.no_grad():
        assert torch.equal(lw.load(tmp_path / "saved")(tokens)[0], model(tokens)[0])


def test_a_classifier_begins_from_a_language_model(base, tmp_path):
    for i in range(20):
        for part in ("train", "test"):
            for name in ("good", "bad"):
                file = tmp_path / "reviews" / part / name / f"{i}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"a {name} film")
    more = [
        "--task",
        "text",
        "--data",
        str(tmp_path / "reviews"),
        "--steps",
        "2",
        "--lora",
        "2",
        "--schedule",
        "constant",
    ]
    assert train(base, tmp_path / "run", *more, "--lora-targets", "qkv") == 0
    began, before = lw.load(base / "base"), weights(tmp_path / "run/last.safetensors")
    assert main(["train", "--resume", str(tmp_path / "run"), "--steps", "3"]) == 0
    after = weights(tmp_path / "run/last.safetensors")
    assert torch.equal(after["embed.weight"], began.embed.weight)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert {name for name in changed if not name.endswith("qkv.weight")} == {n for n in after if n.startswith("head.")}


def test_what_does_not_fit_is_refused(base, tmp_path, capsys):
    def says(text, *more):
        assert train(base, tmp_path / "no", "--steps", "1", *more) == 2
        assert text in capsys.readouterr().err

    says("--d-model is of a new model", "--d-model", "16")
    says("--model is of a new model", "--model=gpt2")
    says("need a model of 257 tokens", "--task", "masked")
    assert main(["train", "--lora", "2", "--steps", "1", "--out", str(tmp_path / "no")]) == 2
    assert "--from says which" in capsys.readouterr().err
    home = tmp_path / "pieces"
    lw.save(lw.create_model("lm", mixer="gru", d_model=8, n_layers=1, vocab=300), home)
    merged = json.loads((base / "base/tokenizer.json").read_text())
    merged["model"]["vocab"]["by"] = 256
    merged["model"]["merges"] = ["b y"]
    (home / "tokenizer.json").write_text(json.dumps(merged))
    common = ["--data", str(base / "text"), *FEW, "--steps", "1", "--out", str(tmp_path / "no")]
    assert main(["train", "--from", str(home), *common]) == 2
    assert "reads the pieces of its tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_checkpoint_with_a_stranger_is_damaged(base, tmp_path, capsys):
    assert train(base, tmp_path / "run", "--steps", "1", "--lora", "2") == 0
    file = tmp_path / "run/last.safetensors"
    tensors, about = read_tensors(file, kind="model")
    write_tensors(file, {**tensors, "stranger": torch.zeros(1)}, about)
    assert main(["train", "--resume", str(tmp_path / "run"), "--steps", "2"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_estimate_and_tune_begin_from_it_too(base, capsys):
    common = ["--from", str(base / "base"), "--data", str(base / "text"), *FEW, "--lora", "2"]
    assert main(["estimate", *common, "--steps", "2"]) == 0
    assert "memory" in capsys.readouterr().out
    assert main(["tune", "lr", *common, "--steps", "12"]) == 0
    assert "where the loss falls the fastest" in capsys.readouterr().out
