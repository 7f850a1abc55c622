"""Encoders beside those of transformers: the same answers, alone, ragged and padded; the same gradients; and back."""

import inspect

import pytest
import torch
import transformers

import longwave as lw
from longwave.models import weights
from longwave.models.weights.convert import all_families
from longwave.models.weights.names import piece
from longwave.models.weights.parity import our_answers, their_answers

CLOSE = 1e-5
LENGTHS = (12, 5, 1)
BERT = dict(vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
            max_position_embeddings=32, pad_token_id=None)  # fmt: skip
MODERN = dict(vocab_size=40, hidden_size=8, num_hidden_layers=5, num_attention_heads=2, intermediate_size=12,
              local_attention=6, pad_token_id=None)  # fmt: skip
TWINS = {  # name: class of transformers, and what its config differs in from the defaults
    "BertModel": ("BertModel", BERT),
    "BertForMaskedLM": ("BertForMaskedLM", BERT),
    "BertForPreTraining": ("BertForPreTraining", BERT),
    "BertForSequenceClassification": ("BertForSequenceClassification", dict(**BERT, num_labels=3)),
    "BertForTokenClassification": ("BertForTokenClassification", dict(**BERT, num_labels=3)),
    "ModernBertModel": ("ModernBertModel", MODERN),
    "ModernBertForMaskedLM": ("ModernBertForMaskedLM", MODERN),
    "ModernBertForSequenceClassification": (
        "ModernBertForSequenceClassification", dict(**MODERN, num_labels=3, classifier_pooling="mean")),
}  # fmt: skip


def twin(name, folder):
    """A random model of transformers, saved; biases and gains random, too."""
    kind, options = TWINS[name]
    cls = getattr(transformers, kind)
    theirs = cls(cls.config_class(**options)).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    theirs.save_pretrained(folder)
    return theirs


def ask(theirs, tokens, **more):
    takes = inspect.signature(theirs.forward).parameters
    return their_answers(theirs(tokens, **{name: value for name, value in more.items() if name in takes}))


def of_row(answer, b, n):
    """What an answer says of row b, of n tokens."""
    return answer[b, :n] if answer.ndim == 3 else answer[b]


@pytest.mark.parametrize("name", TWINS)
def test_in_and_out(name, tmp_path):
    theirs = twin(name, tmp_path / "theirs")
    report = weights.bring(tmp_path / "theirs", tmp_path / "ours")
    assert report.difference <= CLOSE
    ours = lw.load(tmp_path / "ours").eval()
    tokens, lengths = torch.randint(40, (3, max(LENGTHS))), torch.tensor(LENGTHS)
    types = torch.randint(2, tokens.shape) if ours.types else None

    mine = our_answers(ours, tokens, lengths=lengths, types=types)
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    padded = ask(theirs, tokens, attention_mask=mask.long(), token_type_ids=types)
    for b, n in enumerate(LENGTHS):
        one = slice(b, b + 1)
        alone = ask(theirs, tokens[one, :n], token_type_ids=None if types is None else types[one, :n])
        for ours_says, right, also in zip(mine, alone, padded, strict=False):
            torch.testing.assert_close(of_row(ours_says, b, n), right[0], rtol=0, atol=CLOSE)
            torch.testing.assert_close(of_row(ours_says, b, n), of_row(also, b, n), rtol=0, atol=CLOSE)

    lw.save(ours, tmp_path / "trained")
    assert weights.export(tmp_path / "trained", tmp_path / "back").difference <= CLOSE
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    for one, two in zip(ask(again, tokens), ask(theirs, tokens), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", TWINS)
def test_gradients_of_one_step(name, tmp_path):
    """Of every tensor, under their names: what our gradients are written as is what theirs are."""
    theirs = twin(name, tmp_path)
    ours = lw.load(tmp_path)
    family = next(f for f in all_families() if theirs.config.model_type in f.TYPES)
    tokens = torch.randint(40, (2, 9))
    right = ask(theirs, tokens)
    wanted = [torch.randn(each.shape) for each in right]  # any loss would do: a sum with random weights
    sum((each * w).sum() for each, w in zip(right, wanted, strict=True)).backward()
    mine = our_answers(ours, tokens)
    sum((each * w).sum() for each, w in zip(mine, wanted, strict=False)).backward()
    grads = {key: p.grad for key, p in theirs.named_parameters() if p.grad is not None}
    parts, compared = family.names(ours), 0
    for key, p in ours.named_parameters():
        for their_key, grad in piece(parts[key]).write(p.grad if p.grad is not None else torch.zeros_like(p)):
            their_key = their_key if their_key in grads else their_key.removeprefix(family.PREFIX)
            if their_key in grads:
                torch.testing.assert_close(grad, grads[their_key], rtol=1e-3, atol=CLOSE)
                compared += 1
    assert compared == len(grads)
