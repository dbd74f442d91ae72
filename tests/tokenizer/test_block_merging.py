"""Merging in blocks, within a limited memory, gives the merges of the plain algorithm."""

import random
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.block_merging import SymbolBlocks, merge_in_blocks
from trafo.tokenizer.counting import WordCounts
from trafo.tokenizer.merging import Merger
from trafo.tokenizer.reference import Pair, train_bpe_reference

Counts = dict[bytes, int]


def reference(counts: Counts, num_merges: int) -> list[Pair]:
    """Each word as often as it counts; the words hold no white space."""
    text = " ".join((word.decode() + " ") * count for word, count in counts.items())
    return train_bpe_reference(text, 256 + num_merges, [], r"\S+|\s")[1]


def as_partitions(counts: Counts, num_partitions: int) -> list[WordCounts]:
    words = list(counts)
    return [
        word_counts({word: counts[word] for word in words[i::num_partitions]})
        for i in range(num_partitions)
    ]


def word_counts(counts: Counts) -> WordCounts:
    text = np.frombuffer(b"".join(counts), np.uint8)
    ends = np.cumsum([len(word) for word in counts], dtype=np.int64)
    return WordCounts(text, ends, np.array(list(counts.values()), np.int64))


WORDS = st.text("aabbcdé", min_size=1, max_size=12).map(str.encode)


@settings(deadline=None, max_examples=150)
@given(
    counts=st.dictionaries(WORDS, st.integers(1, 40), max_size=40),
    num_merges=st.integers(0, 40),
    num_partitions=st.integers(1, 3),
    max_memory=st.sampled_from([1024, 4096, 10_000, 60_000, 10**6]),
)
def test_equals_the_reference(
    counts: Counts, num_merges: int, num_partitions: int, max_memory: int
) -> None:
    partitions = as_partitions(counts, num_partitions)
    merges = merge_in_blocks(partitions, num_merges, max_memory)
    assert merges == reference(counts, num_merges)


@pytest.mark.parametrize("num_merges", [300, pytest.param(66_000, marks=pytest.mark.slow)])
def test_words_that_are_all_different(num_merges: int) -> None:
    """Symbols of 16 and of 32 bits; so many pairs that they are counted again and again."""
    chance = random.Random(0)
    counts = {bytes(chance.choices(b"abcdefgh", k=30)): 1 for _ in range(500)}
    whole = Merger(word_counts(counts), num_merges).run()
    assert merge_in_blocks(as_partitions(counts, 2), num_merges, 16 << 20) == whole


def many_words(number: int, seed: int = 0) -> Counts:
    """Words and counts somewhat as in a language."""
    rng = random.Random(seed)
    letters = "eeeettaaooiinnsshrdlucmfwypvbgk"
    words = {"".join(rng.choices(letters, k=rng.randint(1, 10))).encode() for _ in range(number)}
    return {word: 1 + int(5000 / (1 + rng.randint(0, 5000))) for word in sorted(words)}


@pytest.mark.parametrize("max_memory", [1 << 24, 1 << 20, 1 << 18, 1 << 16])
def test_from_plenty_of_memory_to_hardly_any(max_memory: int) -> None:
    """In memory, partly in a file, and with a table that holds few pairs at a time."""
    counts = many_words(6000)
    whole = Merger(word_counts(counts), 300).run()
    steps: list[int] = []
    merges = merge_in_blocks(as_partitions(counts, 4), 300, max_memory, advance=steps.append)
    assert merges == whole
    assert sum(steps) == 300  # for the progress bar


def test_the_words_of_merger_are_those_of_the_reference() -> None:
    """What the test above compares with."""
    counts = many_words(300)
    assert Merger(word_counts(counts), 200).run() == reference(counts, 200)


def test_counts_beyond_32_bits() -> None:
    """A corpus of terabytes: no array may be as long as a count is large."""
    counts = {word: 3_000_000_000_000 + count for word, count in many_words(2000).items()}
    whole = Merger(word_counts(counts), 50).run()
    for max_memory in (100_000, 400_000):
        assert merge_in_blocks(as_partitions(counts, 3), 50, max_memory) == whole


@pytest.mark.parametrize("memory", [0, 100, 10_000])
def test_blocks_in_memory_and_on_disk_are_the_same(memory: int) -> None:
    """Words that become shorter, in the blocks that are held and in those that are not."""
    partitions = as_partitions({b"abc": 1, b"de": 2, b"f" * 50: 3}, 3)
    blocks = SymbolBlocks(partitions, np.uint16, memory, BytesIO())

    def found() -> list[list[list[int]]]:
        return [[array.tolist() for array in block] for block in blocks]

    assert found() == [[list(b"abc"), [3], [1]], [list(b"de"), [2], [2]], [[102] * 50, [50], [3]]]
    blocks.update(lambda block: block._replace(symbols=block.symbols[:2], ends=block.ends * 0 + 2))
    assert found() == [[list(b"ab"), [2], [1]], [list(b"de"), [2], [2]], [[102] * 2, [2], [3]]]


def test_too_many_pairs_that_are_equally_frequent() -> None:
    """So many that no table holds them: a clear error, and with more memory the merges."""
    counts = {bytes([a, b]): 1 for a in range(100) for b in range(100, 200)}
    with pytest.raises(InputError, match=r"1\.02 kB of memory are not enough.*allow 2\.05 kB"):
        merge_in_blocks([word_counts(counts)], 20, 1024)
    whole = Merger(word_counts(counts), 20).run()
    assert merge_in_blocks([word_counts(counts)], 20, 16 << 20) == whole


def test_no_words() -> None:
    assert merge_in_blocks([], 10, 1 << 20) == []
    assert merge_in_blocks(as_partitions({b"a": 3, b"b": 1}, 1), 10, 1 << 20) == []
