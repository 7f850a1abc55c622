"""FNet, Nystromformer, BigBird, Longformer and Reformer beside those of transformers; each has a limit of its own."""

import math

import numpy as np
import pytest
import torch
import transformers
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

import longwave as lw
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights.families import all_families
from longwave.models.weights.names import piece
from longwave.models.weights.parity import our_answers
from test_encoder_parity import BERT, CLOSE, ask, of_row
from test_parity import config

FNET = {key: value for key, value in BERT.items() if key != "num_attention_heads"}
NYSTROM = dict(**BERT, num_landmarks=3, segment_means_seq_len=12, conv_kernel_size=5)
BIRD = dict(**BERT, block_size=2, num_random_blocks=1)
LONG = {**BERT, "pad_token_id": 1, "attention_window": 4, "type_vocab_size": 1}
REFORMER = dict(vocab_size=40, hidden_size=8, num_attention_heads=2, attention_head_size=6, feed_forward_size=12,
                attn_layers=["local", "lsh", "local"], axial_pos_shape=[3, 4], axial_pos_embds_dim=[2, 6],
                max_position_embeddings=12, local_attn_chunk_length=6, lsh_attn_chunk_length=6, num_buckets=[2, 4],
                hidden_dropout_prob=0.0, local_attention_probs_dropout_prob=0.0)  # fmt: skip
ROUNDS = {**REFORMER, "num_hashes": 2, "local_attn_chunk_length": 12, "lsh_attn_chunk_length": 12, "num_buckets": 4,
          "axial_pos_embds": False, "layer_norm_eps": 1e-5}  # fmt: skip
TWINS = {  # name: class of transformers, its options; whether it is right on padded batches
    "FNetModel": ("FNetModel", FNET, False),
    "FNetForMaskedLM": ("FNetForMaskedLM", FNET, False),
    "FNetForPreTraining": ("FNetForPreTraining", FNET, False),
    "FNetForSequenceClassification": ("FNetForSequenceClassification", dict(**FNET, num_labels=3), False),
    "NystromformerModel": ("NystromformerModel", NYSTROM, False),
    "NystromformerForMaskedLM": ("NystromformerForMaskedLM", NYSTROM, False),
    "NystromformerForSequenceClassification": (
        "NystromformerForSequenceClassification", dict(**NYSTROM, num_labels=3), False),
    "Nystromformer as attention": (
        "NystromformerForMaskedLM", {**NYSTROM, "segment_means_seq_len": 3, "conv_kernel_size": 1}, True),
    "BigBirdModel": ("BigBirdModel", BIRD, True),
    "BigBirdForMaskedLM": ("BigBirdForMaskedLM", BIRD, True),
    "BigBirdForPreTraining": ("BigBirdForPreTraining", BIRD, True),
    "BigBirdForSequenceClassification": ("BigBirdForSequenceClassification", dict(**BIRD, num_labels=3), True),
    "LongformerModel": ("LongformerModel", LONG, True),
    "LongformerForMaskedLM": ("LongformerForMaskedLM", LONG, True),
    "LongformerForSequenceClassification": ("LongformerForSequenceClassification", dict(**LONG, num_labels=3), True),
    "ReformerModelWithLMHead": ("ReformerModelWithLMHead", dict(**REFORMER, is_decoder=True), True),
    "ReformerForMaskedLM": ("ReformerForMaskedLM", REFORMER, True),
    "Reformer, two rounds": ("ReformerModelWithLMHead", dict(**ROUNDS, is_decoder=True), True),
    "LongformerForTokenClassification": ("LongformerForTokenClassification", dict(**LONG, num_labels=3), True),
}  # fmt: skip
LENGTHS = (12, 5, 1)


def twin(name, folder):
    kind, options, _ = TWINS[name]
    cls = getattr(transformers, kind)
    theirs = cls(cls.config_class(**options)).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    theirs.save_pretrained(folder)
    return theirs


def family_of(theirs):
    return next(f for f in all_families() if theirs.config.model_type in f.TYPES)


def fitting(theirs, tokens):
    """Tokens that it can be asked, and how."""
    family = family_of(theirs)
    return family.asks(theirs.config.to_dict(), tokens) if hasattr(family, "asks") else (tokens, {})


@pytest.mark.parametrize("name", TWINS)
def test_in_and_out(name, tmp_path):
    theirs = twin(name, tmp_path / "theirs")
    assert weights.bring(tmp_path / "theirs", tmp_path / "ours").difference <= CLOSE
    ours = lw.load(tmp_path / "ours").eval()
    tokens, how = fitting(theirs, torch.randint(40, (3, max(LENGTHS))))
    lengths = torch.tensor(LENGTHS[: len(tokens)])
    lengths = torch.full_like(lengths, tokens.shape[1]) if len(tokens) == 1 else lengths
    mine = our_answers(ours, tokens, lengths=lengths)
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
    padded = ask(theirs, tokens, attention_mask=mask, **how)
    for b, n in enumerate(lengths.tolist()):
        short = {key: value[b : b + 1, :n] for key, value in how.items()}
        alone = ask(theirs, tokens[b : b + 1, :n], **short)
        for says, right, also in zip(mine, alone, padded, strict=False):
            torch.testing.assert_close(of_row(says, b, n), right[0], rtol=0, atol=CLOSE)
            if TWINS[name][2]:
                torch.testing.assert_close(of_row(says, b, n), of_row(also, b, n), rtol=0, atol=CLOSE)

    assert weights.export(tmp_path / "ours", tmp_path / "back").difference <= CLOSE
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    tokens, how = fitting(again, tokens)
    for one, two in zip(our_answers(ours, tokens), ask(again, tokens, **how), strict=False):
        torch.testing.assert_close(one, two, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", [name for name in TWINS if "Masked" in name or " " in name or "LM" in name])
def test_gradients_of_one_step(name, tmp_path):
    theirs = twin(name, tmp_path).train("Reformer" in name)  # which has gradients in training only
    ours = lw.load(tmp_path)
    tokens, how = fitting(theirs, torch.randint(40, (2, 12)))
    right = ask(theirs, tokens, **how)[0]
    wanted = torch.randn(right.shape)
    (right * wanted).sum().backward()
    (our_answers(ours, tokens)[0] * wanted).sum().backward()
    grads = {key: p.grad for key, p in theirs.named_parameters() if p.grad is not None}
    parts, compared = family_of(theirs).names(ours), 0
    for key, p in ours.named_parameters():
        for their_key, grad in piece(parts[key]).write(p.grad if p.grad is not None else torch.zeros_like(p)):
            if their_key in grads:
                torch.testing.assert_close(grad, grads[their_key], rtol=1e-3, atol=CLOSE)
                compared += 1
    assert compared == len(grads)


def test_bigbirds_random_blocks(tmp_path, monkeypatch):
    """Of a text long enough to have some: theirs, made to take the blocks that ours drew."""
    theirs = twin("BigBirdForMaskedLM", tmp_path)
    ours = lw.load(tmp_path).eval()
    layers = [block.parts()[0].mixer for block in ours.backbone.parts()[1:]]
    n = 12
    plans = []
    for layer in layers:
        sees = layer.sees(torch.tensor([n]), n)[0]
        near = [{0, n - 1, i - 1, i, i + 1} for i in range(n)]
        plans.append([[b for b in sees[i].tolist() if b >= 0 and b not in near[i]] for i in range(1, n - 1)])
        assert all(len(each) == 1 for each in plans[-1])
    asked = iter(plans)
    monkeypatch.setattr(BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head",
                        lambda self, **_: [np.array(next(asked))] * 2)  # fmt: skip
    tokens = torch.randint(40, (1, 2 * n))
    torch.testing.assert_close(ours(tokens)[0], ask(theirs, tokens)[0], rtol=0, atol=CLOSE)


def test_reformers_local_layers_read_texts_of_any_length(tmp_path):
    options = dict(**REFORMER, is_decoder=True)
    cls = transformers.ReformerModelWithLMHead
    cls(cls.config_class(**{**options, "attn_layers": ["local"] * 2, "axial_pos_shape": [5, 5]})).save_pretrained(
        tmp_path
    )
    theirs, ours = cls.from_pretrained(tmp_path).eval(), lw.load(tmp_path).eval()
    theirs.config.max_position_embeddings = theirs.reformer.embeddings.max_position_embeddings = 25
    tokens = torch.randint(40, (2, 23))
    with torch.no_grad():
        (right,) = ask(theirs, tokens)
        first, state = ours(tokens[:, :15], ours.init_state(2))
        rest, _ = ours(tokens[:, 15:], state)
    torch.testing.assert_close(ours(tokens)[0], right, rtol=0, atol=CLOSE)
    torch.testing.assert_close(torch.cat([first, rest], 1), right, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("n_buckets", [8, (2, 4, 6)])
def test_reformers_buckets_are_those_of_the_same_rotations(n_buckets, monkeypatch):
    ours = lw.create_mixer("reformer", d_model=8, n_heads=2, d_key=6, n_buckets=n_buckets, rounds=3)
    buckets = n_buckets if isinstance(n_buckets, int) else list(n_buckets)
    options = {**REFORMER, "num_buckets": buckets, "num_hashes": 3}
    theirs = LSHSelfAttention(transformers.ReformerConfig(**options), layer_idx=0)
    u = torch.randn(2, 9, 2, 6)
    monkeypatch.setattr(torch, "randn", lambda shape, **_: ours.rotations if shape == ours.rotations.shape else None)
    found = theirs._hash_vectors(u.transpose(1, 2), 3, None).unflatten(2, (3, 9)).permute(0, 3, 1, 2)
    assert torch.equal(ours._hash(u), found - torch.arange(3) * math.prod(ours.buckets))


@pytest.mark.parametrize(("name", "kind", "options"), [
    ("reformer", "ReformerModelWithLMHead",
     dict(is_decoder=True, num_attention_heads=2, max_position_embeddings=2**19, axial_pos_shape=[512, 1024])),
    ("fnet", "FNetForPreTraining", {}),
    ("nystromformer", "NystromformerForMaskedLM", {}),
    ("bigbird", "BigBirdForPreTraining", {}),
    ("longformer", "LongformerForMaskedLM",
     dict(vocab_size=50265, max_position_embeddings=4098, type_vocab_size=1, layer_norm_eps=1e-5)),
])  # fmt: skip
def test_published_sizes_are_theirs(name, kind, options):
    cls = getattr(transformers, kind)
    with torch.device("meta"):
        ours, theirs = lw.create_model(name), cls(cls.config_class(**options))
    assert theirs.num_parameters() - ours.n_parameters in (0, 320, 2 * 768)  # a bias, positions that nobody reads


BAD = {
    "another window a layer": ("LongformerForMaskedLM", dict(attention_window=[4, 8]), "one for all layers"),
    "an odd window": ("LongformerForMaskedLM", dict(attention_window=5), "must be even"),
    "all pairs": ("BigBirdForMaskedLM", dict(attention_type="original_full"), "'attention_type' is"),
    "another start": ("NystromformerForMaskedLM", dict(inv_coeff_init_option=True), "'inv_coeff_init_option' is"),
    "another chunk": ("ReformerForMaskedLM", dict(lsh_attn_chunk_length=4), "chunks are 6 and 4 tokens"),
    "another layer": ("ReformerForMaskedLM", dict(attn_layers=["global"]), "must be a list of local and lsh"),
    "other axes": ("ReformerForMaskedLM", dict(axial_pos_embds_dim=[3, 6]), "of which the sum must be 8"),
    "unknown key": ("FNetForMaskedLM", dict(spectral=1), "unknown key 'spectral'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_is_not_known_is_told_apart(kind, tmp_path):
    name, values, words = BAD[kind]
    twin(name, tmp_path / "theirs")
    config(**values)(tmp_path / "theirs")
    with pytest.raises(UserError, match=words):
        weights.bring(tmp_path / "theirs", tmp_path / "ours")
    assert [p.name for p in tmp_path.iterdir()] == ["theirs"]
