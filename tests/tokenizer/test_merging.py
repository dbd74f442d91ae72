"""Merging pairs, against the reference: the same merges in the same order."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.shared import shared_text

from trafo.tokenizer import reference
from trafo.tokenizer.counting import WordCounts
from trafo.tokenizer.merging import Merger
from trafo.tokenizer.reference import train_bpe_reference

Merges = list[tuple[bytes, bytes]]


def merges_of(words: dict[bytes, int], most: int) -> Merges:
    return Merger(counts_of(words), most).run()


def counts_of(words: dict[bytes, int]) -> WordCounts:
    text = np.frombuffer(b"".join(words), np.uint8)
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return WordCounts(text, ends, np.array(list(words.values()), np.int64))


def expected(words: dict[bytes, int], most: int) -> Merges:
    """The reference's own loop on counts of any words, valid UTF-8 or not."""
    counts = Counter({tuple(bytes([b]) for b in word): count for word, count in words.items()})
    merges: Merges = []
    while len(merges) < most:
        pairs = reference._count_pairs(counts)
        if not pairs:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        counts = Counter({reference._merge(word, merges[-1]): n for word, n in counts.items()})
    return merges


def words_over(alphabet: bytes, longest: int = 12) -> st.SearchStrategy[dict[bytes, int]]:
    word = st.lists(st.sampled_from(alphabet), min_size=1, max_size=longest).map(bytes)
    return st.dictionaries(word, st.integers(1, 5), max_size=25)


def test_worked_example() -> None:
    words = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
    assert [b" ".join(pair).decode() for pair in merges_of(words, 12)] == [
        *["s t", "e st", "o w", "l ow", "w est", "n e"],
        *["ne west", "w i", "wi d", "wid est", "low e", "lowe r"],
    ]


@settings(deadline=None, max_examples=150)
@given(words=words_over(b"ab"), most=st.integers(0, 40))
@example(words={b"aaaa": 1, b"aaa": 2, b"a": 3}, most=10)
@example(words={b"a" * 100: 1}, most=10)
@example(words={b"\x00\x00\x00": 1, b"\x00": 1}, most=10)
@example(words={}, most=5)
def test_runs_of_few_letters(words: dict[bytes, int], most: int) -> None:
    assert merges_of(words, most) == expected(words, most)


@settings(deadline=None, max_examples=100)
@given(words=words_over(b"\x00\x01a\xff", 20))
def test_until_no_pair_is_left(words: dict[bytes, int]) -> None:
    """NUL and 255 are where comparing bytes as numbers or as text could go wrong."""
    merges = expected(words, 10_000)
    assert merges_of(words, len(merges) + 10) == merges


@settings(deadline=None, max_examples=100)
@given(words=words_over(bytes(range(256)), 15))
def test_any_bytes(words: dict[bytes, int]) -> None:
    assert merges_of(words, 60) == expected(words, 60)


def test_ties_between_long_symbols_are_broken_by_all_their_bytes() -> None:
    """Symbols that agree in the first eight bytes, or of which one begins the other."""
    words = {
        b"abcdefghij-1": 3,
        b"abcdefghij-2": 3,
        b"abcdefgh\x00": 2,
        b"abcdefgh": 2,
        b"abcdefgh\x00\x00x": 2,
    }
    assert merges_of(words, 100) == expected(words, 100)


def test_counts_beyond_32_bits_decide() -> None:
    words = {b"ab": 2**33 + 1, b"cd": 2**33 + 2, b"ef": 5}
    assert merges_of(words, 3) == [(b"c", b"d"), (b"a", b"b"), (b"e", b"f")]


def test_very_long_tokens() -> None:
    """A run of one letter doubles: tokens outgrow the room first made for their bytes."""
    size = 1 << 16
    merges = merges_of({b"a" * size: 1}, 100)
    assert merges == [(b"a" * 2**i, b"a" * 2**i) for i in range(12)]  # up to LONGEST_TOKEN


def test_progress_adds_up_to_the_number_of_merges() -> None:
    steps: list[int] = []
    words = {str(number).encode(): 1 for number in range(20_000)}
    merges = Merger(counts_of(words), 1300).run(steps.append)
    assert sum(steps) == len(merges) == 1300
    assert len(steps) > 1


def test_real_text() -> None:
    """Enough distinct pairs that every array has to grow."""
    text = shared_text("udhr-532-languages.txt")[:40_000]
    vocab, merges = train_bpe_reference(text, 256 + 150, [])
    words = Counter(word.encode() for word in reference.split_words(text, "gpt2"))
    assert merges_of(words, 150) == merges
    assert list(vocab.values())[256:] == [a + b for a, b in merges]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tinyshakespeare.txt", "udhr-532-languages.txt"])
def test_many_merges_of_real_text(name: str) -> None:
    """Against a replay: each merge is the best of the pairs that the merges before it left."""
    text = shared_text(name)[:1_000_000]
    words = Counter(word.encode() for word in reference.split_words(text, "gpt2"))
    merges = merges_of(words, 600)
    state = [([bytes([b]) for b in word], count) for word, count in words.items()]
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    words_with: dict[tuple[bytes, bytes], set[int]] = {}
    for i, (word, count) in enumerate(state):
        for pair in pairwise(word):
            pairs[pair] += count
            words_with.setdefault(pair, set()).add(i)
    for merge in merges:
        assert merge == max(pairs, key=lambda pair: (pairs[pair], pair))
        for i in words_with.pop(merge):
            word, count = state[i]
            for pair in pairwise(word):
                pairs[pair] -= count
            word = list(reference._merge(tuple(word), merge))
            state[i] = (word, count)
            for pair in pairwise(word):
                pairs[pair] += count
                words_with.setdefault(pair, set()).add(i)
        pairs = +pairs if len(pairs) % 64 == 0 else pairs
