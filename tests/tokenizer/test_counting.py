"""Counting words, against `collections.Counter`."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared import shared_text

from trafo.tokenizer.counting import (
    WordCounter,
    WordCounts,
    concatenate_counts,
    merge_counts,
)
from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.words import SpecialFinder

SPECIALS = ["<|e|>", "<|e|><|e|>", "word"]

# Words of one letter up to some hundred bytes: those of up to 15 bytes are stored otherwise than
# longer ones, and with NUL bytes, which a key of eight bytes could lose.
WORDS = st.one_of(
    st.text(alphabet="ab\x00é中", min_size=1, max_size=20),
    st.integers(1, 300).map(lambda size: "x" * size),
    st.integers(1, 80).map(lambda size: "\x00" * size),
)
TEXTS = st.lists(st.one_of(WORDS, st.sampled_from([*SPECIALS, " ", "\n"])), max_size=30).map(
    " ".join
)


def as_dict(words: WordCounts) -> dict[bytes, int]:
    """Word -> count."""
    text = words.text.tobytes()
    spans = pairwise([0, *words.ends.tolist()])
    return {text[a:b]: count for (a, b), count in zip(spans, words.counts.tolist(), strict=True)}


def expected(text: str, pattern: str, specials: Sequence[str] = ()) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for piece in split_specials(text, specials):
        if piece not in specials:
            counts.update(word.encode() for word in split_words(piece, pattern))
    return counts


def count(counter: WordCounter, text: str, specials: Sequence[str] = ()) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    counter.count(data, SpecialFinder(specials).find(data, 0, len(data)))


def counts_of(words: dict[bytes, int]) -> WordCounts:
    text = np.frombuffer(b"".join(words), np.uint8)
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return WordCounts(text, ends, np.array(list(words.values()), np.int64))


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\w+|\W"])
@settings(deadline=None, max_examples=25)
@given(texts=st.lists(TEXTS, max_size=3))
def test_text_after_text(pattern: str, texts: list[str]) -> None:
    counter = WordCounter(pattern)
    total: Counter[bytes] = Counter()
    for text in texts:
        count(counter, text, SPECIALS)
        total += expected(text, pattern, SPECIALS)
    assert as_dict(counter.export()) == total
    assert len(counter) == len(total)


def test_words_of_every_length() -> None:
    """At the end of the array too, where eight bytes cannot be read at once."""
    for size in range(1, 150):
        text = "a" * size + " " + "a" * size + "b " + "\x00" * size
        counter = WordCounter("whitespace")
        count(counter, text)
        assert as_dict(counter.export()) == expected(text, "whitespace")


def test_words_that_differ_in_one_byte() -> None:
    for size in (1, 7, 8, 9, 14, 15, 16, 17, 63, 64, 65, 200):
        words = ["a" * i + b + "a" * (size - 1 - i) for i in range(size) for b in "bc\x00"]
        text = " ".join(words + words[::2])
        counter = WordCounter("whitespace")
        count(counter, text)
        assert as_dict(counter.export()) == expected(text, "whitespace")


@pytest.mark.parametrize("long", [False, True])
def test_the_table_and_the_arena_grow(long: bool) -> None:
    """Far beyond the first capacity, so that words move several times."""
    suffix = "-and-a-tail-that-does-not-fit-into-a-key" if long else ""
    words = [f"{number}{suffix}" for number in range(150_000)]
    counter = WordCounter("whitespace")
    before = counter.memory
    count(counter, " ".join(words))
    count(counter, " ".join(words[:1000]))
    exported = as_dict(counter.export())
    assert counter.memory > 3 * before
    assert len(counter) == 150_001
    assert exported.pop(b" ") == 150_998
    assert exported == {w.encode(): 2 if i < 1000 else 1 for i, w in enumerate(words)}


def test_a_word_longer_than_the_arena() -> None:
    text = "a" * 500_000 + " " + "b" * 300_000 + " " + "a" * 500_000
    counter = WordCounter("whitespace")
    count(counter, text)
    assert as_dict(counter.export()) == {b"a" * 500_000: 2, b"b" * 300_000: 1, b" ": 2}


@settings(deadline=None)
@given(
    several=st.lists(
        st.dictionaries(WORDS.map(str.encode), st.integers(1, 2**40), max_size=20), max_size=4
    )
)
def test_counts_of_several_counters_add_up(several: list[dict[bytes, int]]) -> None:
    total: Counter[bytes] = Counter()
    for words in several:
        total.update(words)
    assert as_dict(merge_counts(map(counts_of, several))) == total


def test_counts_need_more_than_32_bits() -> None:
    once = counts_of({b"a": 2**40, b"a word longer than a key": 2**41})
    total = as_dict(merge_counts([once] * 3))
    assert total == {b"a": 3 * 2**40, b"a word longer than a key": 3 * 2**41}


@settings(deadline=None, max_examples=25)
@given(text=TEXTS, num_partitions=st.integers(1, 9))
def test_the_parts_of_an_export_are_the_whole(text: str, num_partitions: int) -> None:
    """A word's partition depends on the word alone, so that they can be merged one by one."""
    counter = WordCounter("gpt2")
    count(counter, text)
    partitions = [counter.export(partition, num_partitions) for partition in range(num_partitions)]
    assert sum(map(len, partitions)) == len(counter)
    assert as_dict(concatenate_counts(partitions)) == expected(text, "gpt2")
    larger = WordCounter("gpt2")
    count(larger, " ".join(map(str, range(40_000))) + "\n")
    count(larger, text)
    for partition, words in enumerate(partitions):
        assert set(as_dict(words)) <= set(as_dict(larger.export(partition, num_partitions)))


def test_a_cleared_counter_starts_again() -> None:
    counter = WordCounter("gpt2")
    empty = counter.memory
    count(counter, " ".join(map(str, range(100_000))))
    counter.clear()
    assert (len(counter), counter.memory) == (0, empty)
    count(counter, "one two")
    assert as_dict(counter.export()) == {b"one": 1, b" two": 1}


def test_nothing_counted_is_an_empty_export() -> None:
    counter = WordCounter("gpt2")
    count(counter, "")
    counter.add(counter.export())
    assert as_dict(counter.export()) == {}


@pytest.mark.parametrize(
    "name",
    ["tinyshakespeare.txt", pytest.param("udhr-532-languages.txt", marks=pytest.mark.slow)],
)
def test_real_text(name: str) -> None:
    text = shared_text(name)
    counter = WordCounter("gpt2")
    count(counter, text)
    assert as_dict(counter.export()) == expected(text, "gpt2")
