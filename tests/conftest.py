"""One thread a process, so that runs are bitwise alike; memory that nobody wrote is NaN, so that reading it shows."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import typecheck

typecheck.install()

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """Real data for tests; it is not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data in {SHARED}, which is not here")
    return SHARED


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)
