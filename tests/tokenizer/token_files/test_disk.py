"""Hints to the system: they change nothing that can be seen, and never fail."""

import os
from pathlib import Path

import pytest

from trafo.tokenizer.token_files import disk


def test_asking_to_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"abc" * 1000)
        disk.start_writing(file.fileno(), 0, 1 << 20)
        disk.start_writing(file.fileno(), 1 << 30, 10)
        file.write(b"d")
    disk.start_writing(-1, 0, 10)  # what is refused is not missed
    assert path.read_bytes() == b"abc" * 1000 + b"d"


def test_a_system_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_system", None)
    disk.start_writing(0, 0, 10)


def test_a_folder_is_synced_where_that_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.sync_folder(tmp_path)

    def refuse(_: int) -> None:
        raise OSError(22, os.strerror(22))

    monkeypatch.setattr(os, "fsync", refuse)
    disk.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "missing")
