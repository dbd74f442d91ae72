"""Chunks: all of the text, once, each standing on its own, and in linear time."""

import gzip
import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.chunks import START, Chunk, Chunker, Position
from trafo.tokenizer.inputs import open_inputs
from trafo.tokenizer.kernels.arrays import Bytes, Specials
from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.words import Cutter, SpecialFinder

SPECIALS = ["<|e|>", "<|e|><|e|>"]
PIECES = st.one_of(
    st.text("ab'l 中é\u0301 \t\r\n12!<|e>", max_size=20),
    st.sampled_from([*SPECIALS, "don't stop ", "  \n"]),
)


def words_of(text: str, pattern: str) -> list[str]:
    """By the reference."""
    return [
        word
        for piece in split_specials(text, SPECIALS)
        for word in ([piece] if piece in SPECIALS else split_words(piece, pattern))
    ]


def text_of(chunk: Chunk) -> str:
    return chunk.data.tobytes().decode()


def chunks_of(chunker: Chunker, start: Position = START) -> list[Chunk]:
    return [chunker.read(planned) for planned in chunker.plan(start)]


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\w+|\W"])
@settings(deadline=None, max_examples=50)
@given(text=st.lists(PIECES, max_size=20).map("".join), chunk_size=st.integers(1, 40))
def test_the_words_of_the_chunks_are_those_of_the_text(
    pattern: str, text: str, chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.txt"
    path.write_bytes(text.encode())
    chunks = chunks_of(Chunker(open_inputs(path), pattern, SpecialFinder(SPECIALS), chunk_size))
    assert [word for chunk in chunks for word in words_of(text_of(chunk), pattern)] == words_of(
        text, pattern
    )
    assert [chunk.plan.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True] * bool(
        text
    )
    for chunk in chunks:  # the special tokens of each, and at the very end that of the document
        data = text_of(chunk).encode()
        found = [data[a:b].decode() for a, b, number in chunk.specials.tolist() if number < 2]
        assert found == [p for p in split_specials(text_of(chunk), SPECIALS) if p in SPECIALS]
        ends = [a for a, _, number in chunk.specials.tolist() if number == 2]
        assert ends == ([len(data)] if chunk.plan.is_last else [])


def summary(chunks: list[Chunk]) -> tuple[bytes, list[list[int]]]:
    """All text, and the places of the special tokens and of the documents' ends in it."""
    text, specials = b"", []
    for chunk in chunks:
        specials += [[len(text) + a, len(text) + b, i] for a, b, i in chunk.specials.tolist()]
        text += chunk.data.tobytes()
    return text, specials


@settings(deadline=None, max_examples=60)
@given(
    files=st.lists(st.lists(PIECES, max_size=8), min_size=1, max_size=3),
    form=st.sampled_from(["txt", "txt.gz", "jsonl"]),
    chunk_size=st.integers(1, 60),
    other_size=st.integers(1, 60),
)
def test_reading_goes_on_from_every_position(
    files: list[list[str]],
    form: str,
    chunk_size: int,
    other_size: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("reading")
    for i, records in enumerate(files):
        lines = [json.dumps({"text": record}) + "\n" for record in records]
        data = "".join(lines if form == "jsonl" else records).encode()
        (folder / f"{i}.{form}").write_bytes(gzip.compress(data) if form == "txt.gz" else data)
    inputs = open_inputs(folder)
    chunker = Chunker(inputs, "gpt2", SpecialFinder(SPECIALS), chunk_size)
    chunks = chunks_of(chunker)
    assert "".join(map(text_of, chunks)) == "".join(chain.from_iterable(files))
    # Resumed with another chunk size, too, nothing is lost, doubled or joined.
    other = Chunker(inputs, "gpt2", SpecialFinder(SPECIALS), other_size)
    disk_bytes = 0
    for i, chunk in enumerate(chunks):
        disk_bytes += chunk.plan.disk_bytes
        at = chunk.plan.next
        assert disk_bytes <= chunker.disk_bytes_before(at) <= inputs.size
        assert summary(chunks_of(other, at)) == summary(chunks[i + 1 :])
    assert not chunks_of(chunker, chunker.end)
    assert chunker.disk_bytes_before(chunker.end) == inputs.size


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "中" * 100_000])
@pytest.mark.parametrize("pattern", ["gpt2", "none"])
def test_a_text_without_a_safe_place_takes_linear_time(
    tmp_path: Path, text: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of reads, none of which can be cut: not all of them are looked at each time."""
    (tmp_path / "a.txt").write_text(text)
    looked_at = 0
    cut = Cutter.cut

    def counting(self: Cutter, data: Bytes, start: int, stop: int) -> tuple[int, Specials]:
        nonlocal looked_at
        looked_at += stop - start
        return cut(self, data, start, stop)

    monkeypatch.setattr(Cutter, "cut", counting)
    chunks = chunks_of(Chunker(open_inputs(tmp_path), pattern, SpecialFinder([]), 1 << 10))
    assert "".join(map(text_of, chunks)) == text
    assert looked_at < 4 * len(text.encode())


def test_most_of_a_plain_file_is_left_to_be_read_by_the_workers(tmp_path: Path) -> None:
    text = ("so it goes <|e|>" * 500 + "中" * 2000 + " and on" * 500).encode()
    (tmp_path / "a.txt").write_bytes(text)
    inputs = open_inputs(tmp_path)
    chunker = Chunker(inputs, "gpt2", SpecialFinder(SPECIALS), 1 << 10)
    plan = list(chunker.plan())
    unread = [chunk for chunk in plan if chunk.raw is None]
    assert plan[: len(unread)] == unread
    assert 7000 < unread[-1].end < 8100  # up to where no blank is near
    assert b"".join(chunker.read(chunk).data.tobytes() for chunk in plan) == text
    assert len(list(Chunker(inputs, "none", SpecialFinder([])).plan())) == 1


def test_a_file_cut_off_while_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("word " * 1000)
    chunker = Chunker(open_inputs(path), "gpt2", SpecialFinder([]), 2048)
    first, *_ = chunker.plan()
    path.write_text("word " * 100)
    with pytest.raises(InputError, match=r"a\.txt: ends at 500 bytes, though it had 2,0"):
        chunker.read(first)


def test_damaged_text_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Text that is not UTF-8 may have no safe place; the planner says so after one read."""
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"\xff" * 100_000))
    with pytest.raises(InputError, match=r"a\.txt\.gz: not UTF-8: byte 0xff at offset 0"):
        next(Chunker(open_inputs(path), "gpt2", SpecialFinder([]), 1000).plan())


def test_records_that_are_not_utf8(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [b"fine", b"half \xe4\xb8", b"\xad rest", b"", b"\xff"]
    column = pyarrow.array(records, pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), len(records), column.buffers())
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: not UTF-8: byte 0xe4 at offset 5"):
        chunks_of(Chunker(open_inputs(tmp_path), "gpt2", SpecialFinder([])))
    replacing = open_inputs(tmp_path, errors="replace")
    [chunk] = chunks_of(Chunker(replacing, "gpt2", SpecialFinder([])))
    ends = np.cumsum([len(record.decode(errors="replace").encode()) for record in records])
    assert text_of(chunk) == "".join(record.decode(errors="replace") for record in records)
    assert chunk.specials[:, 0].tolist() == ends.tolist()
