"""Beam search: exhaustive with enough beams, the same in a batch as alone, greedy with one."""

import itertools
import math

import pytest
import torch
import transformers

import longwave as lw
from longwave.errors import UserError
from longwave.generate.beam import _Penalty, beam_search
from longwave.mixer import valid
from longwave.record import recording

END, VOCAB = 0, 4
ENDS = [3, 5, 8]


def tiny(kind):
    """A model with sharp opinions, and how to start it on a batch of rows."""
    torch.manual_seed(5)
    if kind == "transformer":
        model = lw.create_model(kind, d_model=8, n_layers=1, n_heads=2, d_hidden=8, vocab=VOCAB).double().eval()
    else:
        model = lw.create_model("lm", mixer=kind, d_model=8, n_layers=1, vocab=VOCAB).double().eval()
    with torch.no_grad():
        model.embed.weight.mul_(12 if kind != "transformer" else 2)

    def start(rows, lengths):
        if kind == "transformer":
            return torch.ones(len(rows), 1, dtype=torch.long), model.init_state(rows, lengths), None
        return rows, model.init_state(len(rows)), lengths

    return model, start


def every(length):
    """All continuations that end, or are as long as that."""
    for n in range(1, length + 1):
        for said in itertools.product(range(1, VOCAB), repeat=n - 1):
            yield (*said, END)
    yield from itertools.product(range(1, VOCAB), repeat=length)


@pytest.mark.parametrize("kind", ["transformer", "gla"])
@pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.6])
def test_many_beams_are_exhaustive(kind, penalty):
    model, start = tiny(kind)
    source = torch.randint(VOCAB, (2, 3))
    lengths = torch.tensor([3, 2])
    got = beam_search(model, *start(source, lengths), end=END, beams=3**3, max_tokens=3, length_penalty=penalty)
    for b, n in enumerate(lengths.tolist()):
        scored = []
        for said in every(3):
            first, state, _ = start(source[b : b + 1, :n], None)
            tokens = torch.cat([first, torch.tensor([said])], 1)
            logp = model(tokens[:, :-1], state)[0].log_softmax(-1)[0, first.shape[1] - 1 :]
            scored.append((logp[torch.arange(len(said)), list(said)].sum().item() / len(said) ** penalty, said))
        wanted = sorted(scored, reverse=True)[:10]
        for hypothesis, (score, said) in zip(got[b], wanted, strict=False):
            assert tuple(hypothesis.tokens) == said
            assert hypothesis.score == pytest.approx(score, abs=1e-9)


def test_the_penalties_are_those_of_google():
    """Equation 14 by hand: four tokens, alpha 0.2, beta 0.3; half of one token was looked at, another was twice."""
    looked = torch.tensor([0.5, 2.0, torch.nan], dtype=torch.float64)
    wanted = -3 / (9 / 6) ** 0.2 + 0.3 * math.log(0.5)
    assert _Penalty(0.2, "google", 0.3)(-3.0, 4, looked) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("kind", ["transformer", "gnmt"])
def test_coverage_is_of_what_was_looked_at(kind):
    torch.manual_seed(1)
    sizes = dict(n_heads=2, d_hidden=8) if kind == "transformer" else dict(source_vocab=VOCAB)
    model = lw.create_model(kind, d_model=8, n_layers=2, vocab=VOCAB, **sizes).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    source, lengths, alpha, beta = torch.tensor([[1, 2, 3], [3, 1, 0]]), torch.tensor([3, 2]), 0.6, 0.5
    begin = torch.ones(2, 1, dtype=torch.long)
    how = dict(end=END, beams=3**3, max_tokens=3, length_penalty=alpha)
    got = beam_search(model, begin, model.init_state(source, lengths), rule="google", coverage=beta, **how)
    for b, n in enumerate(lengths.tolist()):
        scored = []
        for said in every(3):
            tokens = torch.tensor([[1, *said]])
            with recording(model) as seen:
                logits, _ = model(tokens[:, :-1], model.init_state(source[b : b + 1, :n]))
            cross = ".1.mixer/weights" if kind == "transformer" else ".0.mixer/weights"
            looks = [w.mean(1)[0] for name, w in seen.items() if name.startswith("decoder") and name.endswith(cross)]
            logp = logits.log_softmax(-1)[0, torch.arange(len(said)), list(said)].sum().item()
            covered = torch.stack(looks).mean(0).sum(0).clamp(max=1).log().sum().item()
            scored.append((logp / ((5 + len(said)) / 6) ** alpha + beta * covered, said))
        for hypothesis, (score, said) in zip(got[b], sorted(scored, reverse=True)[:10], strict=False):
            assert tuple(hypothesis.tokens) == said
            assert hypothesis.score == pytest.approx(score, abs=1e-9)
    plain = beam_search(model, begin, model.init_state(source, lengths), **how)
    assert [row[0].score for row in plain] != [row[0].score for row in got]
    model = lw.create_model("lm", mixer="gru", d_model=8, n_layers=1)
    with pytest.raises(UserError, match="has none"):
        beam_search(model, begin, model.init_state(2), end=END, coverage=0.1)


@pytest.mark.parametrize("kind", ["transformer", "mamba", "attention"])
@pytest.mark.parametrize("hasty", [False, True])
def test_rows_of_a_batch_are_those_alone(kind, hasty):
    model, start = tiny(kind)
    source, lengths = torch.randint(VOCAB, (5, 6)), torch.tensor([6, 1, 4, 2, 6])
    how = dict(end=END, beams=3, max_tokens=12, hasty=hasty)
    got = beam_search(model, *start(source, lengths), **how)
    again = beam_search(model, *start(torch.where(valid(source, lengths), source, 2), lengths), **how)
    for b, n in enumerate(lengths.tolist()):
        (alone,) = beam_search(model, *start(source[b : b + 1, :n], None), **how)
        for other in (alone, again[b]):
            assert [each.tokens for each in got[b]] == [each.tokens for each in other]
            assert [each.score for each in got[b]] == pytest.approx([each.score for each in other])


def test_one_beam_is_greedy():
    model, start = tiny("gla")
    prompt = torch.randint(1, VOCAB, (1, 3))
    ((best,),) = beam_search(model, *start(prompt, None), end=[], beams=1, max_tokens=9)
    assert best.tokens == lw.generate(model, prompt[0].tolist(), max_tokens=9, temperature=0.0)


def test_more_beams_find_no_worse():
    model, start = tiny("transformer")
    source = torch.randint(VOCAB, (6, 5))
    best = [[row[0].score for row in beam_search(model, *start(source, None), end=END, beams=beams, max_tokens=5,
                                                 length_penalty=0.0)] for beams in (1, 3**5)]  # fmt: skip
    assert all(few <= many + 1e-12 for few, many in zip(*best, strict=True))


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_beams_are_those_of_transformers(penalty, tmp_path):
    """Token for token, score for score, of a random GPT-2."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=12, n_embd=8, n_layer=2, n_head=2, n_positions=32, initializer_range=0.5
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ours, prompts = lw.load(tmp_path), torch.randint(12, (6, 4))
    wanted = theirs.generate(
        prompts, attention_mask=torch.ones_like(prompts), num_beams=4, num_return_sequences=4, max_new_tokens=10,
        length_penalty=penalty, eos_token_id=ENDS, pad_token_id=1, do_sample=False, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    got = beam_search(ours, prompts, ours.init_state(6), end=ENDS, max_tokens=10, length_penalty=penalty, hasty=True)
    mine = [each for row in got for each in row]
    assert len({len(each.tokens) for each in mine}) > 2
    for each, said in zip(mine, wanted.sequences[:, 4:].tolist(), strict=True):
        assert each.tokens == said[: len(each.tokens)]
        assert set(said[len(each.tokens) :]) <= {1}  # pads
    torch.testing.assert_close(torch.tensor([each.score for each in mine]), wanted.sequences_scores, rtol=0, atol=1e-4)
