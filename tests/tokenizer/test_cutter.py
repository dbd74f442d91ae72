"""A safe place to cut: the words of both sides, scanned apart, are the words of the whole."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.reference import split_specials
from trafo.tokenizer.words import Cutter, SpecialFinder, whole_characters

AWKWARD = st.text(alphabet="'sſldDRea AÉéǅʰ中א\u0301 \t\n\r\u00a0\u3000123²!/-<|e>😀\u200d")
SPECIALS = ["<|e|>", "<|e|><|e|>", " a", "a b"]
MY_OWN = r"(?<=a)b|\s+|\S+"  # an expression that looks behind


def words(text: str, pattern: str, specials: list[str]) -> list[str]:
    """By the reference: special tokens first, then the expression on what lies between."""
    result = []
    for piece in split_specials(text, specials):
        result += [piece] if piece in specials else split_words(piece, pattern)
    return result


def safe_end(cutter: Cutter, data: bytes) -> int:
    end, specials = cutter.cut(np.frombuffer(data, np.uint8), 0, len(data))
    assert 0 <= end <= len(data)
    assert all(stop <= end for _, stop, _ in specials.tolist())
    return end


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, MY_OWN])
@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["plain", "specials"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_more_text_changes_nothing_before_the_cut(
    pattern: str, specials: list[str], data: st.DataObject
) -> None:
    pieces = st.one_of(AWKWARD, st.text(max_size=10), st.sampled_from(SPECIALS))
    known = data.draw(st.lists(pieces, max_size=8).map("".join), "known")
    more = data.draw(st.lists(pieces, max_size=3).map("".join), "more")
    whole = (known + more).encode()
    known_bytes = len(known.encode()) + data.draw(st.integers(0, 3), "half a character")
    known_bytes = min(known_bytes, len(whole))
    cutter = Cutter(pattern, SpecialFinder(specials))
    end = safe_end(cutter, whole[:known_bytes])
    left, right = whole[:end].decode(), whole[end:].decode()
    assert words(left, pattern, specials) + words(right, pattern, specials) == words(
        left + right, pattern, specials
    )


@pytest.mark.parametrize(
    ("pattern", "alphabet", "specials"),
    [
        ("gpt2", "'l \na", []),
        ("gpt2", " \u00a0e'!", []),
        ("gpt4", "'L \n1", []),
        ("gpt4", "a \r!\u00a0", []),
        ("gpt4o", "A中a\u0301'", []),
        ("gpt4o", "sA'\n/", []),
        ("whitespace", "a \n!é", []),
        ("gpt2", "<' ae", ["<a", "a <", "<a<a"]),
        ("gpt4o", "<' \n/", ["<", "<'<", " <\n"]),
        ("none", "<a ", ["<a<"]),
        (MY_OWN, "ab <", ["<a"]),
    ],
)
@pytest.mark.parametrize("size", [6, pytest.param(7, marks=pytest.mark.slow)])
def test_every_short_text_at_every_cut(
    pattern: str, alphabet: str, specials: list[str], size: int
) -> None:
    texts = ["".join(t) for n in range(size + 1) for t in product(alphabet, repeat=n)]
    words_of = {text: words(text, pattern, specials) for text in texts}
    cutter = Cutter(pattern, SpecialFinder(specials))
    end_of = {}
    for text in texts:
        if len(text) < size:
            data = text.encode()
            end_of[text] = len(data[: safe_end(cutter, data)].decode())
    for text in texts:
        for known in range(len(text)):
            end = end_of[text[:known]]
            if end:
                assert words_of[text[:end]] + words_of[text[end:]] == words_of[text], (text, known)
    some = [end for end in end_of.values() if end]
    assert some or (pattern == "none" and not specials)


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
@settings(deadline=None)
@given(text=st.one_of(AWKWARD, st.text()))
@example(text="")
def test_the_end_of_the_text_is_safe(pattern: str, text: str) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    cutter = Cutter(pattern, SpecialFinder([]))
    assert cutter.cut(data, 0, len(data), is_end=True)[0] == len(data)


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, MY_OWN])
@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["plain", "specials"])
@settings(deadline=None, max_examples=60)
@given(
    text=st.lists(st.one_of(AWKWARD, st.sampled_from([*SPECIALS, "a b ", "1\n"]))).map("".join),
    start=st.integers(0, 60),
    size=st.integers(0, 40),
)
def test_a_place_told_from_a_window_is_safe_in_the_whole_text(
    pattern: str, specials: list[str], text: str, start: int, size: int
) -> None:
    data = text.encode()
    cutter = Cutter(pattern, SpecialFinder(specials))
    place = cutter.last_safe_boundary(data[start : start + size])
    if place is not None:
        assert 0 < place < size
        left, right = data[: start + place].decode(), data[start + place :].decode()
        apart = words(left, pattern, specials) + words(right, pattern, specials)
        assert apart == words(text, pattern, specials)


def test_a_window_of_english_has_such_a_place() -> None:
    window = b"it was the best of times, <|e|> it was <|the end|>, he said."
    for pattern in ("gpt2", "gpt4", "gpt4o", "llama3", "whitespace"):
        cutter = Cutter(pattern, SpecialFinder(["<|e|>", "<|the end|>"]))
        assert cutter.last_safe_boundary(window) == window.index(b" <|the")
    for pattern in ("none", MY_OWN):
        assert Cutter(pattern, SpecialFinder([])).last_safe_boundary(window) is None


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "gpt4o", "whitespace"])
@pytest.mark.parametrize("text", ["word " * 4000, "中 文。" * 4000, "!\n" * 4000, " \n\n!" * 4000])
def test_most_of_a_long_text_is_certain(pattern: str, text: str) -> None:
    """Otherwise memory would grow with the text."""
    cutter = Cutter(pattern, SpecialFinder(SPECIALS))
    data = text.encode()
    assert safe_end(cutter, data) > len(data) - 40


def test_behind_a_special_token_every_pattern_may_be_cut() -> None:
    for pattern in [*PATTERN_NAMES, MY_OWN]:
        cutter = Cutter(pattern, SpecialFinder(["<|e|>"]))
        assert safe_end(cutter, b"a b<|e|>abc!") == 8
        assert safe_end(cutter, b"a!<|e|>") in (0, 7)


def test_text_that_is_not_utf8_is_cut_without_reading_its_characters() -> None:
    cutter = Cutter("gpt2", SpecialFinder([]))
    damaged = np.frombuffer(b"\xff\xff a \xe2\xff \xf0", np.uint8)
    assert cutter.cut(damaged, 0, len(damaged))[0] == 4
    assert cutter.cut(damaged[5:], 0, 4)[0] == 0


@given(text=st.text(min_size=1, max_size=5), cut=st.integers(0, 20))
def test_whole_characters(text: str, cut: int) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    cut = min(cut, len(data))
    known = text.encode()[:cut].decode(errors="ignore")  # drops the half character at the end
    assert whole_characters(data, 0, cut) == len(known.encode())
