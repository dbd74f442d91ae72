"""One seed for every source of randomness in the process."""

from __future__ import annotations

import random
import sys

from trafo.errors import require


def check_seed(seed: int) -> None:
    """Raise unless numpy accepts it."""
    require(0 <= seed < 2**32, f"seed is {seed}", "choose from 0 to 4294967295")


def seed_everything(seed: int) -> None:
    """Seed `random`, numpy and, if it is imported, torch on every device."""
    import numpy as np

    check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    # Text work must run without torch; code that uses torch has imported it before seeding.
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
