"""Generative models: probabilities add up, and draws come as often as they say."""

import itertools

import pytest
import scipy.stats
import torch

import longwave as lw
from longwave.errors import UserError
from longwave.tolerance import TOLERANCE, apart

VOCAB, START, END, LENGTH, COUNT = 4, 0, 3, 3, 50_000


def language():
    return lw.create_model("lstm", d_model=8, n_layers=1, vocab=VOCAB).double().eval()


def translation():
    sizes = dict(d_model=8, n_layers=1, n_heads=2, d_hidden=8, vocab=VOCAB, dropout=0.0)
    return lw.create_model("transformer", **sizes).double().eval()


def louder(model):
    """Weights so large that what is likely differs from what is not."""
    with torch.no_grad():
        model.embed.weight.mul_(3)
    return model


def sentences():
    """All that can be said in so many tokens up to the end, and how many tokens each has."""
    every = []
    for n in range(1, LENGTH + 1):
        for body in itertools.product(range(VOCAB), repeat=n):
            if END not in body[:-1] and (body[-1] == END or n == LENGTH):
                every.append(body)
    return torch.tensor([[*body, *[END] * (LENGTH - len(body))] for body in every]), torch.tensor(list(map(len, every)))


def agree(drawn, lengths, every, chances):
    """The chi-square test: whether draws, cut to their lengths, come as often as their probabilities say."""
    at = {tuple(row): i for i, row in enumerate(every.tolist())}
    assert all(set(row[n:]) <= {END} for row, n in zip(drawn.tolist(), lengths.tolist(), strict=True))
    counted = torch.bincount(torch.tensor([at[tuple(row)] for row in drawn.tolist()]), minlength=len(every))
    assert scipy.stats.chisquare(counted.double(), chances * len(drawn)).pvalue > 0.01


def test_a_language_model_draws_what_it_finds_likely():
    model, (every, lengths) = louder(language()), sentences()
    with torch.no_grad():
        whole = torch.nn.functional.pad(every, (1, 0), value=START)
        chances = model.log_prob(whole, lengths + 1).exp()
        torch.testing.assert_close(chances.sum(), torch.tensor(1.0).double())
        drawn, n = model.sample(COUNT, length=LENGTH, start=START, end=END, generator=torch.Generator().manual_seed(1))
    assert set(drawn[:, 0].tolist()) == {START}
    agree(drawn[:, 1:], n - 1, every, chances / chances.sum())


def test_of_what_is_given_the_rest_is_scored():
    model, (every, lengths) = louder(language()), sentences()
    prompts, sizes = torch.tensor([[0, 2, 1], [1, 0, 0]]), torch.tensor([3, 1])
    for prompt, n in zip(prompts, sizes.tolist(), strict=True):
        whole = torch.cat([prompt[:n].expand(len(every), -1), every], 1)
        rest = model.log_prob(
            every, lengths, given=prompt.expand(len(every), -1), given_lengths=torch.full_like(lengths, n)
        )
        before = model.log_prob(prompt[None, :n]) if n > 1 else 0.0
        assert apart(rest, model.log_prob(whole, lengths + n) - before) < TOLERANCE[torch.float64]
    at = torch.arange(COUNT) % 2
    drawn, n = model.sample(COUNT, length=LENGTH, end=END, given=prompts[at], given_lengths=sizes[at],
                            generator=torch.Generator().manual_seed(1))  # fmt: skip
    for b in (0, 1):
        given, size = prompts[b].expand(len(every), -1), torch.full_like(lengths, int(sizes[b]))
        chances = model.log_prob(every, lengths, given=given, given_lengths=size).exp().detach()
        agree(drawn[b::2], n[b::2], every, chances / chances.sum())


def test_an_encoder_and_decoder_draws_what_it_finds_likely():
    model, (every, lengths) = louder(translation()), sentences()
    source = torch.tensor([[1, 2, 2, 0]])
    whole = torch.nn.functional.pad(every, (1, 0), value=START)
    with torch.no_grad():
        chances = model.log_prob(whole, lengths + 1, given=source.expand(len(every), -1)).exp()
    drawn, n = model.sample(COUNT, length=LENGTH, start=START, end=END, given=source,
                            generator=torch.Generator().manual_seed(1))  # fmt: skip
    agree(drawn[:, 1:], n - 1, every, chances / chances.sum())
    with pytest.raises(UserError, match="3 draws need one thing given, or 3 of them, got 2"):
        model.sample(3, length=2, given=source.expand(2, -1))
