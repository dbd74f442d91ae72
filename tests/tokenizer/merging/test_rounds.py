"""Merging words that do not fit into memory gives the merges of the plain algorithm."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.merging import passes as merge_passes
from trafo.tokenizer.merging import rounds as merge_rounds
from trafo.tokenizer.merging.merger import Merger
from trafo.tokenizer.merging.rounds import merge_in_rounds
from trafo.tokenizer.merging.scanning import merge_by_scanning
from trafo.tokenizer.reference import Pair, train_bpe_reference

Counts = dict[bytes, int]


@pytest.fixture
def nothing_but_words_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small texts are too large for small memories, also as symbols."""
    monkeypatch.setattr(merge_rounds, "_room_to_scan", lambda *_: 0)
    monkeypatch.setattr(merge_rounds, "_FIXED_BYTES", 0)
    monkeypatch.setattr(merge_rounds, "_BYTES_PER_MERGE", 0)


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
    max_memory=st.sampled_from([4096, 10_000, 20_000, 60_000, 10**6]),
)
def test_equals_the_reference(
    counts: Counts, num_merges: int, num_partitions: int, max_memory: int
) -> None:
    partitions = as_partitions(counts, num_partitions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_rounds, "_FIXED_BYTES", 0)
        patch.setattr(merge_rounds, "_BYTES_PER_MERGE", 0)
        merges = merge_in_rounds(lambda: partitions, num_merges, max_memory)
    assert merges == reference(counts, num_merges)


@settings(deadline=None)
@given(
    counts=st.dictionaries(WORDS, st.integers(1, 40), max_size=40),
    num_merges=st.integers(0, 40),
    num_known=st.integers(0, 10),
    num_partitions=st.integers(1, 3),
)
def test_scanning_goes_on_as_the_reference(
    counts: Counts, num_merges: int, num_known: int, num_partitions: int
) -> None:
    partitions = as_partitions(counts, num_partitions)
    expected = reference(counts, num_merges)
    known = expected[:num_known]
    found = merge_by_scanning(lambda: partitions, known, num_merges, 1 << 16)
    assert known + found == expected


@pytest.mark.parametrize("num_merges", [300, pytest.param(66_000, marks=pytest.mark.slow)])
def test_scanning_words_that_are_all_different(num_merges: int) -> None:
    """Symbols of 16 and of 32 bits; so many pairs that they are counted again and again."""
    chance = random.Random(0)
    counts = {bytes(chance.choices(b"abcdefgh", k=30)): 1 for _ in range(500)}
    whole = Merger(word_counts(counts), num_merges).run()
    partitions = as_partitions(counts, 2)
    told: list[int] = []
    found = merge_by_scanning(lambda: partitions, [], num_merges, 1 << 18, told.append)
    assert found == whole
    assert sum(told) == len(whole)
    # Where words are as many as these, rounds give up at once.
    needed = merge_rounds.merging_memory(sum(map(len, counts)), len(counts), num_merges)
    assert merge_in_rounds(lambda: partitions, num_merges, needed // 2) == whole


def many_words(number: int, seed: int = 0) -> Counts:
    """Words and counts somewhat as in a language."""
    rng = random.Random(seed)
    letters = "eeeettaaooiinnsshrdlucmfwypvbgk"
    words = {"".join(rng.choices(letters, k=rng.randint(1, 10))).encode() for _ in range(number)}
    return {word: 1 + int(5000 / (1 + rng.randint(0, 5000))) for word in sorted(words)}


class Calls(Counter[str]):
    """Counts how the merges were found, and how many words were held at most."""

    most_words = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        by_passing, new_merger = merge_rounds.merges_by_passing, Merger

        def passing(*args: Any) -> list[Pair]:
            self["passes"] += 1
            return by_passing(*args)

        def merger(words: WordCounts, *args: Any) -> Merger:
            self["rounds"] += 1
            self.most_words = max(self.most_words, len(words))
            return new_merger(words, *args)

        monkeypatch.setattr(merge_rounds, "merges_by_passing", passing)
        monkeypatch.setattr(merge_rounds, "Merger", merger)


@pytest.mark.usefixtures("nothing_but_words_takes_memory")
@pytest.mark.parametrize("share", [2, 1, 0.3, 0.1, 0.02])
def test_from_plenty_of_memory_to_hardly_any(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    counts = many_words(6000)
    whole = Merger(word_counts(counts), 300).run()
    calls = Calls()
    calls.watch(monkeypatch)
    needed = merge_rounds.merging_memory(sum(map(len, counts)), len(counts), 300)
    told: list[int] = []
    partitions = as_partitions(counts, 4)
    assert merge_in_rounds(lambda: partitions, 300, int(share * needed), told.append) == whole
    assert sum(told) == 300  # for the progress bar
    assert calls.most_words <= max(1, share) * len(counts)
    if share == 2:
        assert calls == {"rounds": 1}
    elif share >= 0.3:
        assert calls["rounds"] > 1
        assert calls.most_words < 0.9 * share * len(counts)
    else:
        assert calls["passes"] > 1


def test_the_words_of_merger_are_those_of_the_reference() -> None:
    """What the test above compares with."""
    counts = many_words(300)
    assert Merger(word_counts(counts), 200).run() == reference(counts, 200)


@pytest.mark.usefixtures("nothing_but_words_takes_memory")
def test_counts_beyond_32_bits() -> None:
    """A corpus of terabytes: no array may be as long as a count is large."""
    counts = {word: 3_000_000_000_000 + count for word, count in many_words(2000).items()}
    whole = Merger(word_counts(counts), 50).run()
    partitions = as_partitions(counts, 3)
    for max_memory in (100_000, 400_000):
        assert merge_in_rounds(lambda: partitions, 50, max_memory) == whole


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 2**62))
def test_least_of_a_step_is_its_smallest_count(count: int) -> None:
    [step] = merge_rounds._step(np.array([count]))
    least = merge_rounds._least_of(int(step))
    assert least <= count
    below, at = merge_rounds._step(np.array([max(least - 1, 0), least]))
    assert below < step <= at


@pytest.mark.usefixtures("nothing_but_words_takes_memory")
def test_buckets_that_many_pairs_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upper bounds that are far too high cost passes, not the right result."""
    counts = many_words(3000)
    expected = Merger(word_counts(counts), 60).run()
    partitions = as_partitions(counts, 2)
    calls = Calls()
    calls.watch(monkeypatch)
    # 1,024 buckets, the least there are; some hundred bytes of room for words.
    assert merge_in_rounds(lambda: partitions, 60, 130_000) == expected
    assert calls["passes"] > 0


@pytest.mark.usefixtures("nothing_but_words_takes_memory")
def test_hardly_any_room_to_count_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """First too many pairs for the table, then fewer; or else a clear error."""
    counts = many_words(3000)
    expected = Merger(word_counts(counts), 20).run()
    monkeypatch.setattr(merge_passes, "_BYTES_PER_PAIR", 1 << 20)
    monkeypatch.setattr(merge_passes, "_FEWEST_PAIRS", 40)
    partitions = as_partitions(counts, 2)
    assert merge_in_rounds(lambda: partitions, 20, 130_000) == expected
    monkeypatch.setattr(merge_rounds, "merges_by_passing", lambda *_: [])
    with pytest.raises(InputError, match=r"130 kB of memory are not enough.*allow 260 kB"):
        merge_in_rounds(lambda: partitions, 20, 130_000)


def test_no_words() -> None:
    assert merge_in_rounds(lambda: [], 10, 1 << 20) == []
    assert merge_in_rounds(lambda: as_partitions({b"a": 3, b"b": 1}, 1), 10, 1 << 20) == []
