"""Files of sentence pairs: every format, and what is wrong with them by file and line."""

import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard

from trafo.data.pairs import read_lines, read_pairs
from trafo.errors import InputError

PAIRS = [("Two dogs.", "Zwei Hunde."), ("A\u2028man\u0085sings", "Ein Mann singt"), ("x y", "z")]


def write(path, lines):
    data = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return str(path)


def texts(pairs):
    return [(pair.source, pair.target) for pair in pairs]


@pytest.fixture
def aligned(tmp_path):
    sides = list(zip(*PAIRS, strict=True))
    return [write(tmp_path / "t.en", sides[0]), write(tmp_path / "t.de.gz", sides[1])]


def test_every_format_gives_the_same_pairs(aligned, tmp_path):
    table = write(tmp_path / "t.tsv.zst", ["\t".join(pair) for pair in PAIRS])
    records = [json.dumps({"en": source, "de": target}) for source, target in PAIRS]
    lines = write(tmp_path / "t.jsonl", records)
    assert texts(read_pairs(aligned)) == PAIRS
    assert texts(read_pairs([table])) == PAIRS
    assert texts(read_pairs([lines], ("en", "de"))) == PAIRS
    together = read_pairs([table, *aligned, table])
    assert texts(together) == PAIRS * 3
    assert together[4].where == f"{aligned[0]} line 2"


def test_lines_that_are_empty_on_both_sides_are_left_out(tmp_path):
    one = write(tmp_path / "a.en", ["one", "", "two"])
    other = write(tmp_path / "a.de", ["eins", " ", "zwei"])
    assert texts(read_pairs([one, other])) == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.en": ["x", "y"], "a.de": ["x"]}, r"a\.en: line 2 has no partner: .*a\.de has 1 lines"),
        ({"a.en": ["x"], "a.de": ["x", "y"]}, r"a\.de: line 2 has no partner: .*a\.en has 1 lines"),
        ({"a.en": ["x", "y"], "a.de": ["x", ""]}, r"a\.de: line 2 is empty on one side"),
        ({"a.en": ["", "y"], "a.de": ["x", "y"]}, r"a\.en: line 1 is empty on one side"),
        ({"a.en": ["x"]}, r"a\.en: is one side only"),
        ({"a.en": ["x"], "a.tsv": ["x\ty"]}, r"a\.en: is one side only"),
        ({"a.tsv": ["x\ty", "x"]}, r"a\.tsv: line 2 has 1 columns; it must be source, tab, target"),
        ({"a.jsonl": ['{"source": "x"}']}, r"a\.jsonl: line 1 has no fields 'source' and 'target'"),
        ({"a.jsonl": ["x"]}, r"a\.jsonl: line 1 is not JSON"),
        ({"a.jsonl": ['{"source": 1, "target": "x"}']}, r"line 1: a side is not a string"),
        ({"a.tsv": ["x\0\ty"]}, r"a\.tsv: line 1 has a NUL character"),
        ({"a.en": [" "], "a.de": [" "]}, r"a\.en: no sentence pairs in it"),
        ({"a.en": [], "a.de": ["x"]}, r"a\.en: is empty"),
    ],
)
def test_what_is_wrong_and_where(tmp_path, files, message):
    paths = [write(tmp_path / name, lines) for name, lines in files.items()]
    with pytest.raises(InputError, match=message):
        read_pairs(paths)


def test_invalid_utf8_of_a_side_can_be_replaced(tmp_path):
    one, other = tmp_path / "a.en", tmp_path / "a.de"
    one.write_bytes(b"a \xff b\nc\n")
    other.write_bytes(b"d\ne\n")
    with pytest.raises(InputError, match="line 1 is not UTF-8: byte 0xff"):
        read_pairs([one, other])
    assert texts(read_pairs([one, other], errors="replace")) == [("a \ufffd b", "d"), ("c", "e")]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\u2028still one\r\ntwo\x0bstill two\n\nfour".encode())
    assert read_lines(path) == ["one\u2028still one", "two\x0bstill two", "", "four"]


def test_what_might_never_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # without a writer
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(InputError, match=f"{path}: is a pipe, a folder or a device"):
            read_lines(path)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr("trafo.data.pairs.available_memory", lambda: 10**7)
    with pytest.raises(InputError, match=r"bomb.*: has more than 2\.50 MB of text"):
        read_lines(path)
