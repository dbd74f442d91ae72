"""The names that users import, and what importing them costs."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import trafo
import trafo.tokenizer

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", trafo.tokenizer.__all__)
def test_every_public_name_of_the_tokenizer_is_there(name: str) -> None:
    public = getattr(trafo.tokenizer, name)
    assert public == "<|endoftext|>" if name == "END_OF_TEXT" else public.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Tokeniser"):
        trafo.tokenizer.Tokeniser  # noqa: B018


def loaded_modules(program: str) -> set[str]:
    """The modules in memory after running a program in a new Python."""
    program += "\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_tokenizer_runs_without_torch_installed() -> None:
    program = """
import sys
sys.modules["torch"] = None  # importing it fails from now on
from trafo.tokenizer import Tokenizer, encode_files, train_bpe
tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
assert tokenizer.decode(tokenizer.encode("a<|endoftext|>b")) == "a<|endoftext|>b"
"""
    assert "trafo.tokenizer.tokenizer" in loaded_modules(program)


def test_importing_trafo_costs_nothing() -> None:
    parts = "trafo.tokenizer, trafo.errors, trafo.train, trafo.checkpoint, trafo.data"
    loaded = loaded_modules(f"import trafo, {parts}")
    assert not loaded & {"numpy", "numba", "torch", "rich", "regex"}


def test_training_starts_without_the_compiler() -> None:
    """`torch._dynamo` takes as long to import as the rest of torch together."""
    program = """
import torch
from trafo.nn import Dropout
from trafo.optim import AdamW
from trafo.train.config import TrainConfig
from trafo.train.fit_memory import require_memory
require_memory(TrainConfig(), 10**15)
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), Dropout(0.5))
optimizer = AdamW(layer.parameters())
layer(torch.ones(2, 4)).sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
"""
    assert "torch._dynamo" not in loaded_modules(program)


PARTS = ["account", "checkpoint", "config", "data", "fast", "generate", "models", "nn"]
PARTS += ["optim", "tokenizer"]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_offers_what_it_names(part: str) -> None:
    """By `import trafo` alone, also after submodules of the same name have been imported."""
    package = getattr(trafo, part)
    assert isinstance(package, ModuleType)
    for name in package.__all__:
        for _ in range(2):
            assert not isinstance(getattr(package, name), ModuleType), name
    with pytest.raises(AttributeError):
        package.no_such_name  # noqa: B018


def test_the_library_s_face() -> None:
    for name in trafo.__all__:
        assert callable(getattr(trafo, name)), name
    assert isinstance(trafo.train, ModuleType)  # and a function, see its docstring
    assert set(trafo.__all__) <= set(dir(trafo))
    with pytest.raises(AttributeError, match="trane"):
        trafo.trane  # noqa: B018


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IMPORT = re.compile(r"^from (trafo[\w.]*) import ([\w, ]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_docs_import_is_there(page: Path) -> None:
    for module, names in IMPORT.findall(page.read_text()):
        for name in names.split(","):
            assert hasattr(import_module(module), name.strip()), f"{module}.{name.strip()}"
