"""Networks with a memory: where a Turing machine's heads look, how long adaptive computation thinks."""

import pytest
import torch
import torch.nn.functional as F

from longwave import mixers
from longwave.mixers.ntm import address
from longwave.record import recording


def told(strength=0.0, gate=0.0, sharp=-60.0, shift=(0.0, 60.0, 0.0)):
    """What a head is told beside its key: by default to use content, stay, and not sharpen."""
    return torch.tensor([[[strength, gate, sharp, *shift]]], dtype=torch.float64)


def test_heads_spread_weights_that_sum_to_one():
    machine = mixers.create("ntm", 8, n_heads=2, slots=5)
    with recording(machine) as seen:
        machine(torch.randn(3, 12, 8))
    weights = seen["/weights"] if "/weights" in seen else seen["weights"]
    assert weights.shape == (3, 12, 4, 5)
    assert bool((weights >= 0).all()) and (weights.sum(-1) - 1).abs().max() <= 1e-6


def test_a_strong_head_finds_the_slot_with_its_key():
    memory = torch.randn(1, 6, 4, dtype=torch.float64)
    before = torch.full((1, 1, 6), 1 / 6, dtype=torch.float64)
    for slot in range(6):
        w = address(memory, before, 3 * memory[:, slot : slot + 1], told(strength=200.0, gate=60.0))
        assert torch.allclose(w[0, 0], F.one_hot(torch.tensor(slot), 6).double(), atol=1e-6)


@pytest.mark.parametrize("moves", [3, 5])
def test_a_shift_is_a_circular_convolution(moves):
    memory, key = torch.randn(1, 7, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    before = torch.rand(1, 1, 7, dtype=torch.float64)
    before = before / before.sum()
    logits = torch.randn(moves, dtype=torch.float64)
    w = address(memory, before, key, told(gate=-60.0, shift=logits.tolist()))
    by_distance = torch.zeros(7, dtype=torch.float64)  # s(d) at d mod 7
    by_distance[torch.arange(moves) - moves // 2] = torch.softmax(logits, 0)
    by_fourier = torch.fft.ifft(torch.fft.fft(before[0, 0]) * torch.fft.fft(by_distance)).real
    assert torch.allclose(w[0, 0], by_fourier, atol=1e-12)


def test_a_head_walks_the_memory_and_comes_around():
    memory, key = torch.randn(1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    w = F.one_hot(torch.tensor([[0]]), 5).double()
    for t in range(1, 12):
        w = address(memory, w, key, told(gate=-60.0, shift=(0.0, 0.0, 60.0)))
        assert int(w.argmax()) == t % 5 and w.max() > 1 - 1e-9


def test_sharpening_undoes_what_a_shift_blurs():
    memory, key = torch.randn(1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    before = torch.tensor([[[0.1, 0.6, 0.3, 0.0, 0.0]]], dtype=torch.float64)
    sharp = address(memory, before, key, told(gate=-60.0, sharp=2.0))
    power = 1 + F.softplus(torch.tensor(2.0, dtype=torch.float64))
    assert torch.allclose(sharp, before**power / (before**power).sum(), atol=1e-12)
    assert sharp[0, 0, 1] > before[0, 0, 1]
