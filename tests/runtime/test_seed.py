"""After the same seed, every generator says the same."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from trafo.errors import ConfigError
from trafo.runtime.seed import seed_everything


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_same_seed_gives_the_same_draws():
    seed_everything(7)
    first = draws()
    later = draws()
    seed_everything(7)
    assert draws() == first
    assert all(a != b for a, b in zip(first, later, strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_numpy_cannot_take_is_refused(seed):
    with pytest.raises(ConfigError, match="from 0 to 4294967295"):
        seed_everything(seed)


def test_seeding_does_not_import_torch():
    code = (
        "import sys; from trafo.runtime.seed import seed_everything; seed_everything(1);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
