"""Our architectures in transformers: they open, generate, train and take adapters, and answer there as they do here."""

import peft
import pytest
import torch
import transformers

import longwave as lw
import longwave.hf
from longwave import models
from longwave.data.tokens import Bytes, read_pieces
from longwave.errors import UserError
from longwave.generate.beam import beam_search
from longwave.models import weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("hybrid")
    torch.manual_seed(1)
    spec = models.preset("lm", mixer=("mamba", "attention", "gla"), d_model=16, n_layers=3)
    model = lw.create_model(spec.but(tied=False, init_std=None))
    lw.save(model, home / "run")
    report = weights.export(home / "run", home / "hf")
    assert report.family == "longwave" and report.difference == 0
    assert "import longwave.hf" in str(report)
    return home / "hf"


@pytest.fixture
def theirs(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture
def padded(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(["a longer prompt", "short"], return_tensors="pt", padding=True)


def test_generation_is_ours(folder, theirs, padded):
    ours, prompts = lw.load(folder), [[0, *b"a longer prompt"], [0, *b"short"]]
    assert padded["attention_mask"][1, 0] == 0  # padded on the left
    greedy = theirs.generate(**padded, max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert len(set(greedy[0, -12:].tolist())) > 3
    assert greedy[:, -12:].tolist() == lw.generate(ours, prompts, max_tokens=12, temperature=0)
    beams = theirs.generate(**padded, max_new_tokens=5, num_beams=3, eos_token_id=None)
    for row, prompt in zip(beams, prompts, strict=True):
        found = beam_search(ours, torch.tensor([prompt]), ours.init_state(1), end=-1, beams=3, max_tokens=5)
        assert row[-5:].tolist() == found[0][0].tokens


def test_a_state_answers_as_the_whole_does(theirs, padded):
    how = dict(max_new_tokens=8, do_sample=True, top_k=20, eos_token_id=None)
    torch.manual_seed(2)
    with_state = theirs.generate(**padded, **how)
    torch.manual_seed(2)
    assert torch.equal(with_state, theirs.generate(**padded, **how, use_cache=False))


def test_the_loss_does_not_see_pads(folder, theirs, padded):
    tokens, mask = padded["input_ids"], padded["attention_mask"]
    ours = lw.load(folder)
    rows = torch.stack([tokens[0], tokens[1].roll(int(mask[1].sum()))])
    want = ours.loss(rows[:, :-1], rows[:, 1:], mask.sum(1) - 1)
    torch.testing.assert_close(theirs(**padded, labels=tokens).loss, want)
    on_the_right = theirs(input_ids=rows, attention_mask=mask.flip(1), labels=rows).loss
    torch.testing.assert_close(on_the_right, want)


def test_their_trainer_takes_our_step(folder, theirs, tmp_path):
    ours = lw.load(folder).train()
    tokens = torch.randint(256, (4, 12))
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=1, per_device_train_batch_size=4, optim="sgd", learning_rate=0.5, max_grad_norm=0,
        lr_scheduler_type="constant", report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    data = [dict(input_ids=row, labels=row) for row in tokens]
    transformers.Trainer(theirs, options, train_dataset=data).train()
    ours.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    for name, parameter in ours.named_parameters():
        moved = dict(theirs.model.named_parameters())[name]
        torch.testing.assert_close(moved.data, parameter.data - 0.5 * parameter.grad, atol=1e-6, rtol=1e-5)
    theirs.save_pretrained(tmp_path / "again")
    back = lw.load(tmp_path / "again")
    assert back.spec == ours.spec and torch.equal(back.embed.weight, theirs.model.embed.weight)


def test_peft_adapts_it(theirs, padded):
    before = theirs.eval()(**padded).logits
    adapted = peft.get_peft_model(
        theirs, peft.LoraConfig(r=2, target_modules=["project", "qkv"], task_type="CAUSAL_LM")
    )
    torch.testing.assert_close(adapted.eval()(**padded).logits, before)  # an adapter begins as nothing
    adapted(**padded, labels=padded["input_ids"]).loss.backward()
    trained = [name for name, p in adapted.named_parameters() if p.grad is not None and p.grad.any()]
    assert trained and all("lora_B" in name for name in trained)
    assert {name.split(".")[4] for name in trained} == {"0", "1", "2"}  # every mixer
    assert adapted.generate(**padded, max_new_tokens=2).shape[1] == padded["input_ids"].shape[1] + 2


@pytest.mark.parametrize(("preset", "auto", "shape"), [
    ("masked_lm", "AutoModelForMaskedLM", [2, 7, 257]),
    ("classifier", "AutoModelForSequenceClassification", [2, 3]),
])  # fmt: skip
def test_encoders_open_too(preset, auto, shape, tmp_path):
    options = dict(n_classes=3, vocab=40) if preset == "classifier" else {}
    model = lw.create_model(preset, d_model=8, n_layers=1, **options).eval()
    lw.save(model, tmp_path / "run")
    assert weights.export(tmp_path / "run", tmp_path / "hf").difference == 0
    opened = getattr(transformers, auto).from_pretrained(tmp_path / "hf")
    tokens, mask = torch.randint(40, (2, 7)), torch.tensor([[1] * 7, [0] * 3 + [1] * 4])
    answer = opened(tokens, attention_mask=mask).logits
    assert list(answer.shape) == shape
    alone = model(tokens[1:, 3:])[0]
    torch.testing.assert_close(answer[1:] if answer.ndim == 2 else answer[1:, 3:], alone)


def test_the_tokenizer_of_bytes(folder):
    pieces, text = read_pieces(folder / "tokenizer.json"), "naïve Ā \N{SNOWMAN} \x7f end"
    assert pieces.prompt(text) == Bytes().prompt(text)
    assert pieces.decode(pieces.encode(text)) == text
    assert pieces.encode("\0") == [0] and pieces.ends == {0} and pieces.size == 256


def test_what_transformers_has_no_class_for(tmp_path):
    lw.save(lw.create_model("wavegan", n_classes=3, n_samples=64, width=4), tmp_path / "run")
    with pytest.raises(UserError, match="has no class in transformers"):
        weights.export(tmp_path / "run", tmp_path / "hf")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
