"""Small models of every kind, and where the real weights are."""

from pathlib import Path

import pytest
from tests.shared import shared


@pytest.fixture
def shared_data() -> Path:
    return shared("")
