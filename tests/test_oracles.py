"""Every mixer against something outside: a published layer, or a plain loop written from its paper."""

import importlib
import pkgutil

import pytest
import torch

import oracles
from longwave import mixers
from longwave.tolerance import TOLERANCE, apart


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(oracles.__path__)])
def test_every_mixer_agrees_with_its_oracle(name):
    oracle = importlib.import_module(f"oracles.{name}")
    assert oracle.__doc__
    torch.manual_seed(0)
    compared = list(oracle.pairs())
    assert any("gradient" in what for what, _, _ in compared) or not list(mixers.create(name, 8).parameters())
    for what, ours, theirs in compared:
        assert apart(ours, theirs) <= TOLERANCE[ours.dtype], what
