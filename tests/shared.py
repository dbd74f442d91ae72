"""The real data beside the repository. A clone may lack it: then the tests that need it skip."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "shared" / "data"
TEXT_FILES = [
    "emoji-zwj-sequences.txt",
    "tinyshakespeare.txt",
    *[
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("tinystories.txt", "udhr-532-languages.txt", "books.txt")
    ],
]


def shared(name: str) -> Path:
    """A file or folder of the data."""
    path = DATA / name
    if not path.exists():
        pytest.skip("the shared data is not on this machine")
    return path


def shared_text(name: str) -> str:
    """The text in one of its files."""
    return shared(f"text/{name}").read_text("utf-8")
