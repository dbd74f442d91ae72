"""Files of which a line is a sentence: what is read, and what would never end is not."""

import gzip
import os
from pathlib import Path

import pytest

from trafo.data import lines
from trafo.data.lines import read_lines
from trafo.errors import InputError


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
    monkeypatch.setattr(lines, "available_memory", lambda: 10**7)
    with pytest.raises(InputError, match=r"bomb.*: has more than 2\.50 MB of text"):
        read_lines(path)
