"""Files in every form give the same text; damaged ones are named with their place."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from trafo.errors import InputError, MissingPackageError
from trafo.tokenizer.reading.sources import Source, expand_paths, fingerprint, open_sources

TEXT = "".join(f"{i} héllo wörld \U0001f600\n" for i in range(3000)).encode()
DOCUMENTS = ["first", "", "zweiter ü", "third\nwith a line"] * 50


def as_zst_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def as_gzip_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": as_gzip_members,
    ".zst": as_zst_frames,
}


def jsonl(documents: list[str], field: str = "text") -> bytes:
    return b"".join(json.dumps({"n": 1, field: text}).encode() + b"\n" for text in documents)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def only(path: Path, **options: str) -> Source:
    [source] = open_sources(path, **options)  # type: ignore[arg-type]
    return source


def documents_of(source: Source, block_size: int) -> list[str]:
    documents = []
    for block in source.blocks(block_size=block_size):
        start = 0
        for end in block.document_ends:
            documents.append(block.data[start:end].decode())
            start = end
        assert start == len(block.data)
    return documents


def check_blocks(source: Source, text: bytes, start_offset: int, block_size: int) -> None:
    position = start_offset
    disk_bytes = 0
    for block in source.blocks(start_offset, block_size):
        assert block.data == text[position : position + len(block.data)]
        assert block.offset == position
        assert disk_bytes <= block.disk_bytes <= source.size
        position += len(block.data)
        disk_bytes = block.disk_bytes
    assert position == max(len(text), start_offset)
    assert not disk_bytes or disk_bytes == source.size


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("block_size", [1 << 10, 4 << 20])
@pytest.mark.parametrize("start_offset", [0, 1, 40_000, len(TEXT)])
def test_plain_and_compressed_text(
    tmp_path: Path, suffix: str, block_size: int, start_offset: int
) -> None:
    path = write(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](TEXT))
    check_blocks(only(path), TEXT, start_offset, block_size)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("block_size", [1, 64, 4 << 20])
def test_json_lines(tmp_path: Path, suffix: str, block_size: int) -> None:
    source = only(write(tmp_path / f"a.jsonl{suffix}", COMPRESS[suffix](jsonl(DOCUMENTS))))
    assert documents_of(source, block_size) == DOCUMENTS
    text = "".join(DOCUMENTS).encode()
    for start_offset in (0, 5, 7, 100, len(text)):
        check_blocks(source, text, start_offset, block_size)


@pytest.mark.parametrize("lines", [b"\xef\xbb\xbf", b"\r\n", b" \n\n"])
def test_json_lines_as_found_in_the_wild(tmp_path: Path, lines: bytes) -> None:
    path = write(tmp_path / "a.jsonl", lines + b'{"body": "x"}\r\n\n{"body": "y"}')
    assert documents_of(only(path, field="body"), 64) == ["x", "y"]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet(tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array(DOCUMENTS, "string")
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
    path = tmp_path / "a.parquet"
    parquet.write_table(
        pyarrow.table({"id": range(len(DOCUMENTS)), "text": column}), path, row_group_size=30
    )
    assert documents_of(only(path), 64) == DOCUMENTS
    check_blocks(only(path), "".join(DOCUMENTS).encode(), 7, 64)
    with pytest.raises(InputError, match="its columns are 'id', 'text'"):
        list(only(path, field="body").blocks())
    with pytest.raises(InputError, match="int64, not strings"):
        list(only(path, field="id").blocks())


def test_parquet_errors_name_the_row(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", None]}), path)
    with pytest.raises(InputError, match=r"a\.parquet, row 2"):
        list(only(path).blocks())
    with pytest.raises(InputError, match="not Parquet"):
        list(only(write(tmp_path / "b.parquet", b"nonsense")).blocks())


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'trafo\[parquet\]'"):
        list(only(write(tmp_path / "a.parquet", b"")).blocks())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"text": ', "not JSON.*column 10"),
        (b'["text"]', "not a JSON object"),
        (b'{"body": "x"}', "no field 'text'; its fields are 'body'"),
        (b'{"text": 3}', "holds no string but 3"),
        (b'{"text": null}', "holds no string but null"),
        (b'{"text": "\xff"}', "not UTF-8 at byte 11"),
        (b'{"text": "\\ud800"}', "half a surrogate pair"),
        (b'{"text": ' + b"9" * 5000 + b"}", "not usable JSON"),
        (b"[" * 200_000, "JSON"),
    ],
)
def test_json_errors_name_the_line(tmp_path: Path, line: bytes, says: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(InputError, match=rf"a\.jsonl, line 2: .*{says}"):
        list(only(path).blocks())


def test_json_errors_replaced_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "a\xff"}\n{"text": "b\\ud800"}\n')
    assert documents_of(only(path, errors="replace"), 64) == ["a\ufffd", "b\ufffd"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_archives(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](TEXT)
    for cut in (3, len(whole) // 4, len(whole) - 2):
        with pytest.raises(InputError, match="ends too early"):
            list(only(write(tmp_path / f"a.txt{suffix}", whole[:cut])).blocks())
    with pytest.raises(InputError, match="damaged or not"):
        list(only(write(tmp_path / f"b.txt{suffix}", b"plain text, no archive")).blocks())


def test_folders_globs_and_doubles(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", ".git/config", "sub/.d.txt"):
        write(tmp_path / name, b"x")
    names = ["a.txt", "b.txt", "sub/c.txt"]
    everything = [tmp_path / name for name in names]
    assert expand_paths(tmp_path) == everything
    assert expand_paths(str(tmp_path)) == everything
    assert expand_paths(f"{tmp_path}/**/*.txt") == everything
    assert expand_paths([tmp_path / "b.txt", tmp_path]) == [everything[i] for i in (1, 0, 2)]
    assert expand_paths(tmp_path / ".hidden") == [tmp_path / ".hidden"]


def test_a_name_with_brackets_is_a_file_first(tmp_path: Path) -> None:
    path = write(tmp_path / "[a].txt", b"x")
    assert expand_paths(path) == [path]


def test_missing_and_empty_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        expand_paths(tmp_path / "absent.txt")
    with pytest.raises(InputError, match="no files found"):
        expand_paths(tmp_path)
    with pytest.raises(InputError, match="no files found"):
        expand_paths(f"{tmp_path}/*.txt")
    with pytest.raises(InputError, match="no input files"):
        expand_paths([])


def test_an_empty_file_has_no_blocks(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.txt.zst"):
        assert list(only(write(tmp_path / name, b"")).blocks()) == []


def test_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x")
    before = fingerprint(tmp_path)
    assert before == fingerprint([path])
    write(path, b"xy")
    assert fingerprint(tmp_path) != before
