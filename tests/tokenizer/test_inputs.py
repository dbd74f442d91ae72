"""Files in every form give the same text; damaged ones are named with their place."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from trafo.errors import InputError, MissingPackageError
from trafo.tokenizer.inputs import Inputs, expand_paths, open_inputs

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


def read_all(inputs: Inputs, read_size: int = 64, start: int = 0) -> list[bytes]:
    """What the only file gives, read by read."""
    [file] = inputs.files
    reads = list(inputs.read(file, read_size, start))
    disk_bytes = [done for _, done in reads]
    assert disk_bytes == sorted(disk_bytes)
    assert not reads or disk_bytes[-1] == file.size
    return [data for data, _ in reads]


def documents_of(inputs: Inputs, read_size: int = 64) -> list[str]:
    return [record.decode() for record in read_all(inputs, read_size)]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("read_size", [1 << 10, 4 << 20])
@pytest.mark.parametrize("start", [0, 1, 40_000, len(TEXT)])
def test_plain_and_compressed_text(tmp_path: Path, suffix: str, read_size: int, start: int) -> None:
    path = write(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](TEXT))
    assert b"".join(read_all(open_inputs(path), read_size, start)) == TEXT[start:]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("read_size", [1, 64, 4 << 20])
def test_json_lines(tmp_path: Path, suffix: str, read_size: int) -> None:
    path = write(tmp_path / f"a.jsonl{suffix}", COMPRESS[suffix](jsonl(DOCUMENTS)))
    assert documents_of(open_inputs(path), read_size) == DOCUMENTS


@pytest.mark.parametrize("lines", [b"\xef\xbb\xbf", b"\r\n", b" \n\n"])
def test_json_lines_as_found_in_the_wild(tmp_path: Path, lines: bytes) -> None:
    path = write(tmp_path / "a.jsonl", lines + b'{"body": "x"}\r\n\n{"body": "y"}')
    assert documents_of(open_inputs(path, field="body")) == ["x", "y"]


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
    assert documents_of(open_inputs(path)) == DOCUMENTS
    with pytest.raises(InputError, match="its columns are 'id', 'text'"):
        read_all(open_inputs(path, field="body"))
    with pytest.raises(InputError, match="int64, not strings"):
        read_all(open_inputs(path, field="id"))


def test_parquet_errors_name_the_row(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", None]}), path)
    with pytest.raises(InputError, match=r"a\.parquet, row 2"):
        read_all(open_inputs(path))
    with pytest.raises(InputError, match="not Parquet"):
        read_all(open_inputs(write(tmp_path / "b.parquet", b"nonsense")))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[parquet\]'"):
        read_all(open_inputs(write(tmp_path / "a.parquet", b"")))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"text": ', "not JSON.*column 10"),
        (b'["text"]', "not a JSON object"),
        (b'{"body": "x"}', "no field 'text'; its fields are 'body'"),
        (b'{"text": 3}', "is not a string but 3"),
        (b'{"text": null}', "is not a string but null"),
        (b'{"text": "\xff"}', "not UTF-8 at byte 11"),
        (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        (b'{"text": ' + b"9" * 5000 + b"}", "not usable JSON"),
        (b"[" * 200_000, "JSON"),
    ],
)
def test_json_errors_name_the_line(tmp_path: Path, line: bytes, says: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(InputError, match=rf"a\.jsonl, line 2: .*{says}"):
        read_all(open_inputs(path))


def test_json_errors_replaced_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "a\xff"}\n{"text": "b\\ud800"}\n')
    assert documents_of(open_inputs(path, errors="replace")) == ["a\ufffd", "b\ufffd"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_archives(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](TEXT)
    for cut in (3, len(whole) // 4, len(whole) - 2):
        with pytest.raises(InputError, match="ends too early"):
            read_all(open_inputs(write(tmp_path / f"a.txt{suffix}", whole[:cut])))
    with pytest.raises(InputError, match="damaged or not"):
        read_all(open_inputs(write(tmp_path / f"b.txt{suffix}", b"plain text, no archive")))


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


def test_an_empty_file_has_no_text(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.txt.zst"):
        assert read_all(open_inputs(write(tmp_path / name, b""))) == []


def test_the_identity_changes_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x")
    before = open_inputs(tmp_path).fingerprint()
    assert before == open_inputs([path]).fingerprint()
    assert before != open_inputs(path, field="body").fingerprint()
    assert before != open_inputs(path, errors="replace").fingerprint()
    write(path, b"xy")
    assert open_inputs(tmp_path).fingerprint() != before


def test_the_first_characters(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"")
    write(tmp_path / "b.jsonl", jsonl(["ä", "", "中文", "rest"]))
    assert [open_inputs(tmp_path).first_characters(n) for n in (0, 2, 9)] == [
        "",
        "ä中",
        "ä中文rest",
    ]
    write(tmp_path / "a.txt", "😀é".encode())
    assert open_inputs(tmp_path).first_characters(1) == "😀"
