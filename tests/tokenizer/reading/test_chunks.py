"""Chunks: all of the text, once, each standing on its own, and in linear time."""

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.reading.chunks import Chunk, Chunker, UnreadChunk
from trafo.tokenizer.reading.positions import Position, Read, disk_bytes_before, read_all
from trafo.tokenizer.reading.sources import open_sources
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.words.specials import SpecialFinder

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


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\w+|\W"])
@settings(deadline=None, max_examples=50)
@given(text=st.lists(PIECES, max_size=20).map("".join), chunk_size=st.integers(1, 40))
def test_the_words_of_the_chunks_are_those_of_the_text(
    pattern: str, text: str, chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.txt"
    path.write_bytes(text.encode())
    chunker = Chunker(pattern, SpecialFinder(SPECIALS), chunk_size=chunk_size)
    [source] = open_sources(path)
    chunks = list(chunker.chunks(source))
    assert [word for chunk in chunks for word in words_of(text_of(chunk), pattern)] == words_of(
        text, pattern
    )
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True] * bool(text)
    for chunk in chunks:  # the special tokens of each, and at the very end that of the document
        data = text_of(chunk).encode()
        found = [data[a:b].decode() for a, b, number in chunk.specials.tolist() if number < 2]
        assert found == [p for p in split_specials(text_of(chunk), SPECIALS) if p in SPECIALS]
        ends = [a for a, _, number in chunk.specials.tolist() if number == 2]
        assert ends == ([len(data)] if chunk.is_last else [])


def summary(reads: list[Read]) -> tuple[bytes, list[list[int]]]:
    """All text, and the places of the special tokens and of the documents' ends in it."""
    text, specials = b"", []
    for read in reads:
        chunk = read.chunk.read()
        specials += [[len(text) + a, len(text) + b, i] for a, b, i in chunk.specials.tolist()]
        text += chunk.data.tobytes()
    return text, specials


@settings(deadline=None, max_examples=60)
@given(
    files=st.lists(st.lists(PIECES, max_size=8), min_size=1, max_size=3),
    form=st.sampled_from(["txt", "txt.gz", "jsonl"]),
    chunk_size=st.integers(1, 60),
)
def test_reading_goes_on_from_every_position(
    files: list[list[str]],
    form: str,
    chunk_size: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("reading")
    for i, records in enumerate(files):
        lines = [json.dumps({"text": record}) + "\n" for record in records]
        data = "".join(lines if form == "jsonl" else records).encode()
        (folder / f"{i}.{form}").write_bytes(gzip.compress(data) if form == "txt.gz" else data)
    sources = open_sources(folder)
    chunker = Chunker("gpt2", SpecialFinder(SPECIALS), chunk_size=chunk_size)
    reads = list(read_all(sources, chunker, Position()))
    assert b"".join(read.chunk.read().data.tobytes() for read in reads).decode() == "".join(
        record for records in files for record in records
    )
    assert sum(read.disk_bytes for read in reads) <= sum(source.size for source in sources)
    done = 0
    for i, read in enumerate(reads):
        done += len(read.chunk.read().data)
        assert read.position.num_bytes == done
        again = list(read_all(sources, chunker, read.position))
        assert summary(again) == summary(reads[i + 1 :])  # the chunks may be others
        assert again[-1:] == [] or again[-1].position == reads[-1].position
    assert not list(read_all(sources, chunker, Position().at_end()))
    whole = sum(source.size for source in sources)
    assert disk_bytes_before(sources, Position().at_end()) == whole


@pytest.mark.parametrize("text", ["a" * 3_000_000, " " * 3_000_000, "中" * 1_000_000])
@pytest.mark.parametrize("pattern", ["gpt2", "none"])
def test_a_text_without_a_safe_place_takes_linear_time(
    tmp_path: Path, text: str, pattern: str
) -> None:
    """Thousands of blocks, none of which can be cut: looking at all each time takes minutes."""
    (tmp_path / "a.txt").write_text(text)
    [source] = open_sources(tmp_path)
    chunker = Chunker(pattern, SpecialFinder([]), chunk_size=1 << 10)
    list(Chunker(pattern, SpecialFinder([])).chunks(source))  # loads the kernels
    start = time.process_time()
    chunks = list(chunker.chunks(source))
    assert time.process_time() - start < 5
    assert sum(len(chunk.data) for chunk in chunks) == len(text.encode())


def test_most_of_a_plain_file_is_left_to_be_read_by_who_takes_it(tmp_path: Path) -> None:
    text = ("so it goes <|e|>" * 500 + "中" * 2000 + " and on" * 500).encode()
    (tmp_path / "a.txt").write_bytes(text)
    [source] = open_sources(tmp_path)
    chunker = Chunker("gpt2", SpecialFinder(SPECIALS), chunk_size=1 << 10)
    plan = list(chunker.plan(source))
    unread = [chunk for chunk in plan if isinstance(chunk, UnreadChunk)]
    assert plan[: len(unread)] == unread
    assert 7000 < sum(chunk.num_bytes for chunk in unread) < 8100  # up to where no blank is near
    assert b"".join(chunk.read().data.tobytes() for chunk in plan) == text
    assert len(list(Chunker("none", SpecialFinder([])).plan(source))) == 1


def test_a_file_cut_off_while_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("word " * 1000)
    [source] = open_sources(path)
    first, *_ = Chunker("gpt2", SpecialFinder([]), chunk_size=2048).plan(source)
    path.write_text("word " * 100)
    with pytest.raises(InputError, match=r"a\.txt: ends at 500 bytes, though it had 2,0"):
        first.read()


def test_records_that_are_not_utf8(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [b"fine", b"half \xe4\xb8", b"\xad rest", b"", b"\xff"]
    column = pyarrow.array(records, pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), len(records), column.buffers())
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    [source] = open_sources(tmp_path)
    with pytest.raises(InputError, match=r"a\.parquet: not UTF-8: byte 0xe4 at offset 5"):
        list(Chunker("gpt2", SpecialFinder([])).chunks(source))
    [chunk] = Chunker("gpt2", SpecialFinder([]), "replace").chunks(source)
    ends = np.cumsum([len(record.decode(errors="replace").encode()) for record in records])
    assert text_of(chunk) == "".join(record.decode(errors="replace") for record in records)
    assert chunk.specials[:, 0].tolist() == ends.tolist()
