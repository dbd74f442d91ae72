"""Pieces: their chunks are all of the text, once, with the words of the whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.tokenizer import chunks as pieces
from trafo.tokenizer.chunks import START, Chunker, Position, chunks_of, plan_pieces
from trafo.tokenizer.inputs import open_inputs
from trafo.tokenizer.patterns import split_words
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.words import SpecialFinder

SPECIAL = "<|e|>"
TEXT = st.lists(
    st.one_of(
        st.text("ab'l 中é\u0301 \t\r\n12!<|e>", max_size=20),
        st.sampled_from([SPECIAL, "don't stop ", "  \n", "a word and another "]),
    ),
    max_size=30,
).map("".join)


def words_of(text: str) -> list[str]:
    """By the reference."""
    parts = split_specials(text, [SPECIAL])
    return [w for p in parts for w in ([p] if p == SPECIAL else split_words(p, "gpt2"))]


def write(folder: Path, texts: list[str], packed: list[bool]) -> list[Path]:
    paths = []
    for i, (text, is_packed) in enumerate(zip(texts, packed, strict=True)):
        path = folder / (f"{i}.txt.gz" if is_packed else f"{i}.txt")
        path.write_bytes(gzip.compress(text.encode()) if is_packed else text.encode())
        paths.append(path)
    return paths


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(TEXT, min_size=1, max_size=4),
    packed=st.lists(st.booleans(), min_size=4, max_size=4),
    piece_size=st.integers(1, 120),
    chunk_size=st.integers(1, 60),
    largest_whole=st.sampled_from([0, 40, 1000]),
    resume_after=st.integers(0, 3),
)
@example(  # what is left of a compressed file has no bytes left on the disk
    texts=["two words", "1"],
    packed=[True, True],
    piece_size=1,
    chunk_size=1,
    largest_whole=0,
    resume_after=1,
)
def test_the_pieces_hold_the_words_of_each_file(
    texts: list[str],
    packed: list[bool],
    piece_size: int,
    chunk_size: int,
    largest_whole: int,
    resume_after: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    inputs = open_inputs([str(p) for p in write(folder, texts, packed[: len(texts)])])
    chunker = Chunker(inputs, "gpt2", SpecialFinder([SPECIAL]), chunk_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "LARGEST_WHOLE", largest_whole)
        planned = list(plan_pieces(chunker, piece_size))
        first = planned[:resume_after]
        start = first[-1].end if first else START
        planned = [*first, *plan_pieces(chunker, piece_size, start)]
    found: list[list[str]] = [[] for _ in texts]
    last_of_file: list[int] = []
    for piece in planned:
        for chunk in chunks_of(piece, chunker):
            index = inputs.files.index(chunk.file)
            found[index] += words_of(chunker.read(chunk).data.tobytes().decode())
            last_of_file += [index] * chunk.is_last
    assert found == [words_of(text) for text in texts]
    assert last_of_file == [i for i, text in enumerate(texts) if text]
    assert sum(piece.disk_bytes for piece in planned) == inputs.size
    assert [p.start for p in planned[1:]] == [p.end for p in planned[:-1]]
    assert planned[-1].end == Position(len(texts))


def test_a_piece_has_about_the_size_asked_for(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text("some words " * 10_000)
    for i in range(100):
        (tmp_path / f"small{i:03}.txt").write_text("some words " * 10)
    chunker = Chunker(open_inputs(tmp_path), "gpt2", SpecialFinder([]), 1000)
    sizes = [piece.disk_bytes for piece in plan_pieces(chunker, 5000)]
    assert sum(sizes) == 110_000 + 11_000
    assert all(4900 <= size <= 5110 for size in sizes[:20])
    assert len(sizes) in (25, 26)
