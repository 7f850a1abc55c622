"""Training in chunks gives the gradients of the whole, for every mixer that streams, and holds one chunk only."""

import pytest
import torch

import longwave as lw
from longwave import mixers
from longwave.laws import Case, Subject, gradients, same, weigh
from longwave.mixer import Mixer, valid

CAUSAL = [name for name in mixers.names() if Subject(name).causal]


def everything(subject, case, mixer, run):
    """Output, what comes after it, and all gradients."""
    x, dt = subject.x(case).requires_grad_(), subject.dt(case)
    state = subject.state(mixer, case)
    lengths = None if case.lengths is None else torch.tensor(case.lengths)
    torch.manual_seed(3)
    y, last = run(x, state, lengths, dt)
    y = y if lengths is None else torch.where(valid(x, lengths)[..., None], y, 0)
    after, _ = mixer(subject.x(case, T=3, seed=5), last)
    found = gradients(weigh(y, 1) + weigh(after, 2), mixer, x, state)
    return [("the output", y), ("the output after it", after), *found]


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("lengths", [None, (13, 0, 6)], ids=["full", "ragged"])
def test_chunks_are_exact(name, lengths):
    subject = Subject(name)
    case = Case(T=13, B=3, lengths=lengths, started=True, dt="token" if subject.continuous else None)
    mixer = subject.make(case)
    try:
        whole = everything(subject, case, mixer, mixer)
    except lw.UserError:  # not every continuous mixer takes a step that changes
        case = Case(T=13, B=3, lengths=lengths, started=True)
        whole = everything(subject, case, mixer, mixer)
    pieces = everything(subject, case, mixer, lambda *given: lw.chunked(mixer, *given, chunk=5))
    for (what, got), (_, wanted) in zip(pieces, whole, strict=True):
        same(what, got, wanted, case)


def loss_and_gradients(model, **how):
    torch.manual_seed(5)
    with lw.aux_losses() as terms:
        tokens = torch.randint(256, (2, 60))
        loss = model.loss(tokens, tokens.roll(-1, 1), torch.tensor([60, 41]), **how)
    total = loss.sum() + sum(term.total for term in terms)
    return [total, *torch.autograd.grad(total, list(model.parameters()))]


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_a_language_model_learns_the_same_in_chunks(reduction):
    spec = lw.Spec(
        "language_model", d_model=8, blocks=[[lw.Spec("mamba"), lw.Spec("ffn")], [lw.Spec("attention", n_heads=2)]]
    )
    model = lw.create_model(spec).double().eval()
    for a, b in zip(
        loss_and_gradients(model, reduction=reduction, chunk=16),
        loss_and_gradients(model, reduction=reduction),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


class Noisy(Mixer):
    """Dropout and an auxiliary loss a token, to be replayed."""

    def __init__(self, d_model: int, per_token: bool = True) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(d_model))
        self.per_token = per_token

    def forward(self, x, state=None, lengths=None):
        y = torch.nn.functional.dropout(x * self.w, 0.5, self.training)
        lw.aux_loss("size", y.square().mean(-1), per_token=self.per_token)
        return y, state


def test_random_numbers_are_replayed():
    mixer = Noisy(4).train()
    x = torch.randn(2, 10, 4, requires_grad=True)
    with lw.aux_losses() as terms:
        y, _ = lw.chunked(mixer, x, chunk=3)
    (y.sum() + terms[0].total).backward()
    kept = (y.detach() != 0) * 2.0
    wanted = kept * (1 + 2 * y.detach() / 4)
    torch.testing.assert_close(mixer.w.grad, (wanted * x.detach()).sum((0, 1)))
    torch.testing.assert_close(terms[0].total, y.square().mean(-1).sum())


def test_what_cannot_be_cut_says_so():
    x = torch.randn(1, 9, 4)
    with pytest.raises(lw.UserError, match="no sum over tokens"), lw.aux_losses():
        lw.chunked(Noisy(4, per_token=False), x, chunk=4)
    with pytest.raises(lw.UserError, match="sees the whole sequence at once"):
        lw.chunked(lw.create_mixer("fnet", d_model=4), x, chunk=4)
    with pytest.raises(lw.UserError, match="at least 1 token, got 0"):
        lw.chunked(lw.create_mixer("lstm", d_model=4), x, chunk=0)


def test_memory_is_that_of_a_chunk():
    held = []
    mixer = lw.create_mixer("lstm", d_model=16)
    x = torch.randn(1, 4096, 16)

    def note(t):
        held[-1] += t.nbytes
        return t

    for run in (mixer, lambda x: lw.chunked(mixer, x, chunk=256)):
        held.append(0)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            run(x)
    assert held[1] - x.nbytes < held[0] / 8  # the input stays


def test_both_ways_are_cut_each_by_itself():
    both = lw.Bidirectional(lw.create_mixer("gru", d_model=4), lw.create_mixer("s4d", d_model=4)).double()
    x, lengths = torch.randn(3, 11, 4, dtype=torch.float64, requires_grad=True), torch.tensor([11, 4, 0])
    real = (torch.arange(11) < lengths[:, None])[..., None]
    wanted = [x, *both.parameters()]
    found = []
    for y, _ in (both(x, None, lengths), lw.chunked(both, x, None, lengths, chunk=3)):
        y = torch.where(real, y, 0)
        found.append([y, *torch.autograd.grad(y.square().sum(), wanted)])
    for whole, cut in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole)
