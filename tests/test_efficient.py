"""What stands in for attention at less than its cost, and how near it comes."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from longwave import mixers
from longwave.errors import UserError
from longwave.laws import check
from longwave.ops import use
from longwave.parts.features import log_positive_features, orthogonal_directions


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
