"""Small models of every kind, and where the real weights are."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data is not on this machine")
    return SHARED_DATA
