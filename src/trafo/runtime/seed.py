"""One seed for every source of randomness in the process."""

from __future__ import annotations

import random
import sys

from trafo.errors import ConfigError


def seed_everything(seed: int) -> None:
    """Seed `random`, numpy and, if it is imported, torch on every device."""
    import numpy as np

    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed {seed} is out of range", hint="choose from 0 to 4294967295")
    random.seed(seed)
    np.random.seed(seed)
    # Text work must run without torch: whoever uses torch has imported it before seeding.
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
