"""Encoders beside those of transformers: the same answers, alone, ragged and padded; the same gradients; and back."""

import inspect

import pytest
import torch
import transformers

import longwave as lw
from longwave.models import weights
from longwave.models.weights.config import Config
from longwave.models.weights.convert import all_families
from longwave.models.weights.names import piece
from longwave.models.weights.parity import our_answers, their_answers
from test_parity import any_config_is_read_or_told_apart

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


HIDDEN = dict(attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, initializer_range=0.02,
              layer_norm_eps=1e-12, gradient_checkpointing=False, max_position_embeddings=512, pad_token_id=0,
              position_embedding_type="absolute", type_vocab_size=2, use_cache=True, vocab_size=30522)  # fmt: skip
GUESS = {"cls.predictions.transform.dense.weight": (768, 768)}
PUBLISHED = {  # as their config.json says it on the hub; beside it a tensor of the head, and the number of parameters
    "bert-base-uncased": (109_514_298, GUESS, dict(
        **HIDDEN, model_type="bert", architectures=["BertForMaskedLM"], hidden_size=768, intermediate_size=3072,
        num_attention_heads=12, num_hidden_layers=12)),
    "all-MiniLM-L6-v2": (22_713_216, {"pooler.dense.weight": (384, 384)}, dict(
        **HIDDEN, model_type="bert", architectures=["BertModel"], hidden_size=384, intermediate_size=1536,
        num_attention_heads=12, num_hidden_layers=6)),
    "ModernBERT-base": (149_655_232, {"head.dense.weight": (768, 768), "decoder.bias": (50368,)}, dict(
        model_type="modernbert", architectures=["ModernBertForMaskedLM"], attention_bias=False, attention_dropout=0.0,
        bos_token_id=50281, classifier_activation="gelu", classifier_bias=False, classifier_dropout=0.0,
        classifier_pooling="mean", cls_token_id=50281, decoder_bias=True, deterministic_flash_attn=False,
        embedding_dropout=0.0, eos_token_id=50282, global_attn_every_n_layers=3, global_rope_theta=160000.0,
        gradient_checkpointing=False, hidden_activation="gelu", hidden_size=768, initializer_cutoff_factor=2.0,
        initializer_range=0.02, intermediate_size=1152, layer_norm_eps=1e-05, local_attention=128,
        local_rope_theta=10000.0, max_position_embeddings=8192, mlp_bias=False, mlp_dropout=0.0, norm_bias=False,
        norm_eps=1e-05, num_attention_heads=12, num_hidden_layers=22, pad_token_id=50283,
        position_embedding_type="absolute", sep_token_id=50282, sparse_pred_ignore_index=-100,
        sparse_prediction=False, tie_word_embeddings=True, vocab_size=50368)),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_on_the_hub(name):
    wanted, shapes, values = PUBLISHED[name]
    family = next(f for f in all_families() if values["model_type"] in f.TYPES)
    config = Config({"torch_dtype": "float32", "transformers_version": "4.48.0", **values}, name, shapes)
    spec = family.spec(config)
    config.done()
    with torch.device("meta"):
        model = lw.create_model(spec)
    assert model.n_parameters == wanted
    again = Config({**family.config(model), "model_type": values["model_type"]}, name, shapes)  # and back
    assert family.spec(again).options["blocks"] == spec.options["blocks"]


@pytest.mark.parametrize("name", ["BertForMaskedLM", "ModernBertForMaskedLM"])
def test_any_config_is_read_or_told_apart(name, tmp_path):
    twin(name, tmp_path)
    any_config_is_read_or_told_apart(tmp_path)
