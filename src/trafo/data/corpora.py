"""A corpus without a download: the standard library of the Python that is running.

In: the `.py` files below the standard library's folder, code and docstrings as they are, and the
language reference that `help()` shows (`pydoc_data.topics`). Out: one UTF-8 text, about 10 MB,
`<|endoftext|>` after each document. The same Python always gives the same bytes. The documents are
shuffled, so that the end of the text, which is held out in training, is like the rest of it.

Left out: packages that were installed later, the library's own tests (19 MB, which would outweigh
all else), the tables of old encodings (nothing but numbers), what describes the machine rather
than the language, and files that are not UTF-8.
"""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from trafo.errors import InputError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.tokenizer import END_OF_TEXT

_SKIPPED_FOLDERS = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "encodings",
    "pydoc_data",  # comes as documentation
}
_SKIPPED_PREFIXES = ("_sysconfigdata", "config-")


def build_corpus(folder: str | Path) -> Path:
    """Write the corpus into `folder`, unless it is there already, and return the file."""
    folder = Path(folder)
    path = folder / f"python-{platform.python_version()}.txt"
    if path.exists():  # it was written as a whole or not at all
        return path
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for document in documents():
            file.write(document.encode() + b"\n" + END_OF_TEXT.encode() + b"\n")
    return path


def documents(library: str | Path | None = None) -> Iterator[str]:
    """Sources and documentation, in an order that depends on nothing but their names."""
    library = Path(library or sysconfig.get_path("stdlib"))
    sources = {path.relative_to(library).as_posix(): path for path in _sources(library)}
    if not sources:
        raise InputError(
            "this Python came without the source code of its library",
            where=str(library),
            hint="give your own text, or use another Python",
        )
    topics = _topics()
    for name in sorted([*sources, *topics], key=_mixed):
        text = _read(sources[name]) if name in sources else topics[name].strip()
        if text:
            yield text


def _sources(library: Path) -> Iterator[Path]:
    for path in library.rglob("*.py"):
        parts = path.relative_to(library).parts
        skipped = _SKIPPED_FOLDERS.intersection(parts[:-1]) or any(
            part.startswith(_SKIPPED_PREFIXES) for part in parts
        )
        if not skipped:
            yield path


def _read(path: Path) -> str | None:
    """Read a text without white space around it, empty if it is not UTF-8."""
    try:
        text = path.read_bytes().decode()
    except (UnicodeDecodeError, OSError):
        return None
    return None if END_OF_TEXT in text else text.strip()


def _topics() -> dict[str, str]:
    """The language reference, which some systems leave out of Python."""
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        return {}
    return topics


def _mixed(name: str) -> bytes:
    return hashlib.blake2b(name.encode()).digest()
