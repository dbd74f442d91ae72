"""The adapters as a module; tests are no package, so they are loaded by path."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def adapters() -> ModuleType:
    path = Path(__file__).with_name("adapters.py")
    spec = importlib.util.spec_from_file_location("adapters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
