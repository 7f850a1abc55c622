"""What stands in for attention at less than its cost, and how near it comes."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from longwave import mixers
from longwave.errors import UserError
from longwave.laws import check
from longwave.models.block import Backbone
from longwave.ops import use
from longwave.parts.features import log_positive_features, orthogonal_directions
from longwave.record import aux_losses
from longwave.spec import Spec
from longwave.tolerance import apart


def softmax_attention(like, causal):
    """Attention of the same width with the same projections."""
    right = mixers.create("attention", 8, n_heads=2, position="none", causal=causal).double()
    right.qkv.weight, right.out.weight = like.qkv.weight, like.out.weight
    return right


def test_linear_attention_without_a_map_has_no_normaliser():
    with pytest.raises(UserError, match="normalise=False"):
        mixers.create("linear_attention", 8, feature="identity")
    report = check(lambda d: mixers.create("linear_attention", d, feature="identity", normalise=False))
    assert report.ok, f"\n{report}"


@pytest.mark.parametrize("causal", [True, False])
def test_random_features_estimate_softmax_attention(causal):
    """Of queries and keys about as long as the projections of a fresh mixer, whose exponentials vary little enough."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 16, 8, dtype=torch.float64) / 2 / 8**0.25
    seen = torch.ones(16, 16).tril() if causal else torch.ones(16, 16)
    wanted = (q @ k.T).exp() * seen
    wanted = wanted / wanted.sum(-1, keepdim=True)
    total = torch.zeros_like(wanted)
    for _ in range(200):
        directions = orthogonal_directions(256, 8)
        weights = log_positive_features(q, directions).exp() @ log_positive_features(k, directions).exp().T * seen
        total += weights / weights.sum(-1, keepdim=True)
    assert (total / 200 - wanted).norm() <= 0.02 * wanted.norm()


def test_orthogonal_directions_are_so_in_blocks():
    W = orthogonal_directions(10, 4)
    unit = W / W.norm(dim=1, keepdim=True)
    for block in unit.split(4):
        torch.testing.assert_close(block @ block.T, torch.eye(len(block)), atol=1e-5, rtol=0)
    many = orthogonal_directions(40000, 4)
    torch.testing.assert_close(many.T @ many / 40000, torch.eye(4), atol=0.03, rtol=0)
    assert many.mean(0).abs().max() < 0.02  # a QR decomposition alone prefers some signs


def test_a_performer_stays_within_range():
    """Keys that grow a hundredfold and shrink again: exponents of hundreds cancel, before and after a cut."""
    mixer = mixers.create("performer", 8, n_heads=2, n_features=16)
    x = torch.randn(1, 40, 8) * torch.cat([torch.ones(10), torch.full((10,), 100.0), torch.full((20,), 0.01)])[:, None]
    y, _ = mixer(x)
    assert y.isfinite().all()
    first, state = mixer(x[:, :15], mixer.init_state(1))
    rest, state = mixer(x[:, 15:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), y, atol=1e-5, rtol=1e-4)
    assert all(part.isfinite().all() for part in state.leaves())


def test_a_landmark_for_every_token_is_softmax_attention():
    torch.manual_seed(0)
    for T in (1, 7, 32):
        mixer = mixers.create("nystromformer", 8, n_heads=2, landmarks=32, iterations=20, taps=None).double()
        x = torch.randn(2, T, 8, dtype=torch.float64)
        wanted, _ = softmax_attention(mixer, causal=False)(x)
        assert (mixer(x)[0] - wanted).abs().max() <= 1e-4


def test_a_linformer_says_how_long_it_is():
    mixer = mixers.create("linformer", 8, longest=16)
    assert mixer(torch.randn(1, 16, 8))[0].shape == (1, 16, 8)
    with pytest.raises(UserError, match="longest=17 makes room"):
        mixer(torch.randn(1, 17, 8))


def test_one_bucket_in_one_chunk_is_full_attention_with_shared_keys():
    torch.manual_seed(0)
    mixer, x = mixers.create("reformer", 8, n_heads=1, n_buckets=1, chunk=20), torch.randn(2, 20, 8)
    u, v = mixer.uv(x).chunk(2, -1)
    scores = u @ (u / u.norm(dim=-1, keepdim=True)).mT
    scores = scores.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    scores = scores.masked_fill(torch.eye(20).bool(), -1e5)
    assert (mixer(x)[0] - mixer.out(scores.softmax(-1) @ v)).abs().max() <= 1e-5


def test_buckets_are_those_of_the_saved_rotations():
    torch.manual_seed(0)
    mixer, twin, x = mixers.create("reformer", 8), mixers.create("reformer", 8), torch.randn(1, 200, 8)
    assert not torch.equal(mixer(x)[0], twin(x)[0])
    twin.load_state_dict(mixer.state_dict())
    torch.randn(3)  # no draw from the generator decides
    assert torch.equal(mixer(x)[0], twin(x)[0])
    with pytest.raises(UserError, match="n_buckets could be 8"):
        mixers.create("reformer", 8, n_buckets=7)


LINEAR = [("performer", {}), ("performer", {"causal": False}), ("linformer", {"longest": 4096}), ("nystromformer", {}),
          ("luna", {}), ("luna", {"causal": False}), ("linear_attention", {}), ("reformer", {})]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), LINEAR)
def test_cost_is_linear_in_length(name, options):
    def cost(T):
        mixer = mixers.create(name, 8, **options)
        with FlopCounterMode(display=False) as counter, use("torch"):
            mixer(torch.randn(1, T, 8))[0].sum().backward()
        return counter.get_total_flops()

    assert math.log(cost(4096) / cost(1024)) / math.log(4) <= 1.1


def stored(model, x):
    """Bytes that autograd keeps for backward, parameters aside."""
    held = {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(t):
        if t.untyped_storage().data_ptr() not in own:
            held[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(x)
    return sum(held.values())


def two_branches(n_layers, residual="reversible", **options):
    torch.manual_seed(0)
    blocks = [[Spec("reformer", n_heads=2), Spec("ffn", **options)]] * n_layers
    return Backbone(16, blocks=blocks, residual=residual)


def test_reversible_layers_have_the_gradients_of_stored_activations():
    model, x = two_branches(6), torch.randn(2, 40, 16, requires_grad=True)
    lengths, weight = torch.tensor([40, 17]), torch.randn(2, 40, 16)
    found = []
    for state in (None, model.init_state(2)):  # with a state, activations are stored
        y, _ = model(x, state, lengths)
        y = torch.where(torch.arange(40)[:, None] < lengths[:, None, None], y, 0)
        found.append([y, *torch.autograd.grad((y * weight).sum(), [x, *model.parameters()])])
    for ours, right in zip(*found, strict=True):
        assert apart(ours, right) <= 1e-4


def test_reversible_layers_replay_their_dropout():
    model, x = two_branches(3, dropout=0.3).double().train(), torch.randn(2, 9, 16, dtype=torch.float64)
    weight = model.parts()[0].parts()[1].mixer.out.weight

    def loss(at):
        torch.manual_seed(5)
        return torch.func.functional_call(model, {"0.1.mixer.out.weight": at}, (x,))[0].sin().sum()

    (found,) = torch.autograd.grad(loss(weight), weight)
    step = torch.randn_like(weight) * 1e-6
    with torch.no_grad():
        assert (loss(weight + step) - loss(weight - step)) / 2 == pytest.approx(float((found * step).sum()), rel=1e-4)


def test_reversible_layers_keep_no_activations():
    x = torch.randn(1, 64, 16, requires_grad=True)
    few, many = stored(two_branches(2), x), stored(two_branches(10), x)
    assert many == few
    assert stored(two_branches(10, "pre"), x) > 20 * many


def test_reversible_layers_pass_on_auxiliary_losses():
    blocks = [[Spec("rlstm"), Spec("ffn")]] * 2
    torch.manual_seed(0)
    model, x = Backbone(8, blocks=blocks, residual="reversible").double().train(), torch.randn(2, 7, 8).double()
    found = []
    for state in (None, model.init_state(2)):
        torch.manual_seed(1)  # which stretches are reconstructed
        with aux_losses() as terms:
            y, _ = model(x, state)
        assert terms
        loss = y.sum() + sum(term.total for term in terms)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)])
    for ours, right in zip(*found, strict=True):
        assert (ours is None) == (right is None) and (ours is None or apart(ours, right) < 1e-9)


def test_reversible_layers_hand_nothing_on():
    with pytest.raises(UserError, match="none can hand on"):
        Backbone(8, blocks=[[Spec("rwkv7", n_heads=2), Spec("ffn")]] * 2, residual="reversible")
