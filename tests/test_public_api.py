"""The names that users import, and what importing them costs."""

import subprocess
import sys

import pytest

import trafo.tokenizer


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
    loaded = loaded_modules("import trafo, trafo.tokenizer, trafo.errors")
    assert not loaded & {"numpy", "numba", "torch", "rich", "regex"}
