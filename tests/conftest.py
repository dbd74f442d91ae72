"""What all tests with tensors share. The others do not import torch, and neither does this."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A machine may be busy: how long an example takes says nothing about the code.
settings.register_profile("trafo", deadline=None)
settings.load_profile("trafo")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are faster without handing work between threads."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
