"""Existing files where a tokenizer is to be written, and whether they may be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trafo.errors import StorageError

COUNTS = "counts"  # the folder beside the tokenizer's files that training leaves

_FILES = ("trafo.json", "tokenizer.json", "vocab.json", "merges.txt")


def refuse_to_replace(path: Path) -> None:
    """Raise if there is a file, or a folder that holds a tokenizer."""
    if path.is_file() or any((path / name).exists() for name in _FILES):
        what = "the file already exists" if path.is_file() else "already has a tokenizer"
        raise StorageError(
            what, where=str(path), hint="--overwrite replaces it, or give another name"
        )


def refuse_other_training(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise if the folder's tokenizer was not trained as `facts` says.

    What an interrupted training left may be used by the same training.
    """
    from trafo.tokenizer.formats.load import load_training_facts
    from trafo.tokenizer.train import has_counts_of

    if folder.exists() and not folder.is_dir():
        raise StorageError("is a file", where=str(folder), hint="give the name of a folder")
    if not (folder / "trafo.json").exists():
        if not has_counts_of(folder / COUNTS, facts):
            refuse_to_replace(folder)
        return
    trained = load_training_facts(folder)
    for key, value in facts.items():
        if trained.get(key) != value:
            differs = key.replace("_", " ")
            raise StorageError(
                f"has a tokenizer that was trained differently (other {differs})",
                where=str(folder),
                hint="--overwrite replaces it, or give another folder",
            )
