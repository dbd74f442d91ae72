"""A token file says whose ids it holds, and one that is damaged is not taken for whole."""

import binascii
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trafo.errors import FormatError, InputError, StorageError
from trafo.tokenizer.chunks import Position
from trafo.tokenizer.token_file import (
    TokenFile,
    documents_path,
    dtype_for,
    manifest_path,
)
from trafo.tokenizer.token_writer import TokenWriter

HASH = "0123456789abcdef" * 4
IDS = [5, 1, 65_535, 0, 5, 7]
ENDS = [2, 5]


def write(path: Path, ids: list[int], ends: list[int], vocab_size: int = 65_536) -> Path:
    with TokenWriter(path, HASH, vocab_size, {"inputs": [["a.txt", 1, 2]]}) as writer:
        dtype = np.dtype(dtype_for(vocab_size))
        writer.write(np.array(ids, dtype), np.array(ends, np.int64), 9, Position(0, 9))
        writer.finish()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.tokens", IDS, ENDS)


def test_ids_and_documents_come_back(path: Path) -> None:
    tokens = TokenFile.open(path, HASH)
    assert tokens.ids.tolist() == IDS
    assert tokens.document_ends.tolist() == [2, 5, 6]  # the last document ends with the ids
    assert len(tokens) == 6
    assert tokens.manifest.num_documents == 3
    assert tokens.manifest.num_bytes == 9
    assert isinstance(tokens.ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0] = 1


def test_the_files_are_as_documented(path: Path) -> None:
    assert path.read_bytes() == np.array(IDS, "<u2").tobytes()
    assert documents_path(path).read_bytes() == np.array([2, 5, 6], "<u8").tobytes()
    assert json.loads(manifest_path(path).read_text()) == {
        "format": "trafo tokens",
        "version": 2,
        "tokenizer_hash": HASH,
        "vocab_size": 65_536,
        "dtype": "uint16",
        "num_tokens": 6,
        "num_bytes": 9,
        "num_documents": 3,
        "checksum": binascii.crc32(path.read_bytes()),
        "documents_checksum": binascii.crc32(documents_path(path).read_bytes()),
        "made_from": {"inputs": [["a.txt", 1, 2]]},
    }
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "corpus.tokens",
        "corpus.tokens.documents",
        "corpus.tokens.json",
    ]


def test_everything_is_on_disk_before_the_manifest_names_it(
    tmp_path: Path, disk_calls: list[tuple[str, str]]
) -> None:
    """What outlives a power failure is what was synced; names last, that of the manifest last."""
    write(tmp_path / "a", IDS, ENDS)
    assert [call for call in disk_calls if not call[1].endswith(".tmp")] == [
        ("fsync", ".a.partial"),
        ("fsync", ".a.partial.documents"),
        ("rename", ".a.partial.json"),
        ("fsync", tmp_path.name),
        ("rename", "a"),
        ("rename", "a.documents"),
        ("rename", "a.json"),
        ("fsync", tmp_path.name),
    ]


def test_ids_that_need_32_bits(tmp_path: Path) -> None:
    assert [dtype_for(size) for size in (256, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
    path = write(tmp_path / "a", [65_536, 1], [], vocab_size=65_537)
    assert TokenFile.open(path).ids.tolist() == [65_536, 1]
    assert path.stat().st_size == 8


def test_no_ids_at_all(tmp_path: Path) -> None:
    tokens = TokenFile.open(write(tmp_path / "a", [], []))
    assert len(tokens) == len(tokens.ids) == len(tokens.document_ends) == 0


def test_empty_documents_are_none(tmp_path: Path) -> None:
    tokens = TokenFile.open(write(tmp_path / "a", [1, 2, 3], [0, 3]))
    assert tokens.document_ends.tolist() == [3]


def test_another_tokenizer_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"corpus\.tokens: made by another tokenizer \(01234567"):
        TokenFile.open(path, "f" * 64)


@pytest.mark.parametrize("size", [0, 11, 13])
def test_a_file_of_another_size_than_the_manifest_says(path: Path, size: int) -> None:
    data = path.read_bytes() + b"x"
    path.write_bytes(data[:size])
    with pytest.raises(FormatError, match=rf"corpus\.tokens: has {size} bytes where .* says 12"):
        TokenFile.open(path)


def test_a_document_index_of_another_size(path: Path) -> None:
    documents_path(path).write_bytes(b"12345678")
    with pytest.raises(FormatError, match=r"tokens\.documents: has 8 bytes where .* says 24"):
        TokenFile.open(path)


@pytest.mark.parametrize("missing", [Path, documents_path])
def test_a_missing_part(path: Path, missing: type[Path]) -> None:
    missing(path).unlink()
    with pytest.raises(StorageError, match=r"no such file.*while reading"):
        TokenFile.open(path)


def test_without_a_manifest_it_is_not_finished(path: Path, tmp_path: Path) -> None:
    manifest_path(path).unlink()
    with pytest.raises(InputError, match="not a finished token file"):
        TokenFile.open(path)
    with pytest.raises(InputError, match="no such file"):
        TokenFile.open(tmp_path / "absent")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\xfe", b"[]", b"null", b"3", b'{"format": "trafo tokens"}', b'{"a": 1}', b"{"],
)
def test_a_manifest_that_is_none(path: Path, garbage: bytes) -> None:
    manifest_path(path).write_bytes(garbage)
    with pytest.raises(FormatError, match=r"tokens\.json: is not a manifest"):
        TokenFile.open(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "other tokens"),
        ("version", 1),
        ("checksum", None),
        ("num_tokens", "six"),
        ("num_tokens", None),
        ("num_tokens", -6),
        ("num_documents", 3.5),
        ("vocab_size", "many"),
        ("dtype", "object"),
        ("dtype", "float16"),
        ("dtype", 7),
        ("tokenizer_hash", 12),
        ("made_from", []),
        ("surplus", 1),
    ],
)
def test_a_manifest_with_a_wrong_field(path: Path, field: str, value: object) -> None:
    about = json.loads(manifest_path(path).read_text())
    manifest_path(path).write_text(json.dumps(about | {field: value}))
    with pytest.raises(FormatError, match=r"tokens\.json: is not a manifest"):
        TokenFile.open(path)


@pytest.mark.parametrize("which", [Path, documents_path])
def test_a_flipped_bit_is_found_and_encoded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: Callable[[Path], Path]
) -> None:
    path = write(tmp_path / "corpus.tokens", IDS, ENDS)
    assert TokenFile.open(path).verify().ids.tolist() == IDS
    data = bytearray(which(path).read_bytes())
    data[3] ^= 4
    which(path).write_bytes(data)
    with pytest.raises(FormatError, match=r"wrong checksum.*encode the text again"):
        TokenFile.open(path).verify()
    write(path, IDS, ENDS)
    assert "wrong checksum" in capsys.readouterr().err
    assert TokenFile.open(path).verify().ids.tolist() == IDS
