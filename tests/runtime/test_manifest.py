"""Manifests are read back for the same fingerprint, and for no other."""

from pathlib import Path

import pytest

from trafo.runtime.manifest import read_manifest, write_manifest


def test_only_the_same_fingerprint_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    assert read_manifest(path, {"a": 1}) is None
    write_manifest(path, {"a": (1, 2)}, position=(0, 5), num_bytes=7)
    assert read_manifest(path, {"a": (1, 2)}) == {"position": [0, 5], "num_bytes": 7}
    assert read_manifest(path, {"a": [1, 2]}) is not None
    assert read_manifest(path, {"a": [1, 3]}) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"key": 1}', "[" * 10_000])
def test_a_damaged_manifest_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    assert read_manifest(path, {"a": 1}) is None
