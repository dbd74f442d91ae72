"""The scanners against the regular expressions: the same words for every text and pattern."""

import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared import TEXT_FILES, shared_text

from trafo.tokenizer.kernels.scan import OFFSET_MASK, SPECIAL_SHIFT
from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.words import NO_SPECIALS, SCANNERS, Scanner

DISTINCT = ["gpt2", "gpt4", "gpt4o", "whitespace"]  # llama3 is gpt4; none is all in one word

# Contractions in every case, letters of every case and of none, marks, digits of other scripts,
# white space that is and is not \s, newlines, slashes, joined emoji.
AWKWARD = (
    "'sSſtTdDmMlLvVeErRaAéÉßǅʰªºא中ا\u0301\u0903\u20dd "
    "\t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u180e\u1680\u2003\u2028\u200b\u3000\ufeff"
    "0123٣²½Ⅷ〇-/!_\x00\x7f€😀\u200d👩🏽\U0001d400\U000e0100\U0010ffff"
)
CONTRACTIONS = [
    *["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'LL", "'Re", "'vE", "'ſ", "'S", "''s", "'l"],
    *["'r", "'v", "\u2019s", " 's", "a's", "A'S", "1's", "'s's", "'re've"],
]
PIECES = st.one_of(
    st.sampled_from(AWKWARD),
    st.sampled_from(CONTRACTIONS),
    st.sampled_from(["  ", " \n", "\n ", "\r\n", "\u00a0 ", "aB", "Ab", "ABc", "中A", "/\n", "!/"]),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def expected(pattern: str, text: str) -> list[str]:
    return split_words(text, pattern)


def scan(
    pattern: str, data: bytes, start: int, stop: int, specials: np.ndarray = NO_SPECIALS
) -> list[int]:
    """The stream of ends."""
    stream: list[int] = []
    for first, ends in Scanner(pattern).words(np.frombuffer(data, np.uint8), start, stop, specials):
        assert first == (stream[-1] & OFFSET_MASK if stream else start)
        stream += ends.tolist()
    return stream


def scanned(pattern: str, text: str) -> list[str]:
    data = text.encode()
    ends = scan(pattern, data, 0, len(data))
    return [data[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("pattern", DISTINCT)
@settings(deadline=None, max_examples=100)
@given(text=TEXTS)
def test_awkward_text(pattern: str, text: str) -> None:
    assert scanned(pattern, text) == expected(pattern, text)


@pytest.mark.parametrize("pattern", DISTINCT)
@settings(deadline=None, max_examples=100)
@given(text=TEXTS, pad=st.integers(0, 130), filler=st.sampled_from(["a", " ", "1", "!", "\n", "é"]))
def test_text_at_every_place_in_a_block(pattern: str, text: str, pad: int, filler: str) -> None:
    padded = filler * pad + text
    assert scanned(pattern, padded) == expected(pattern, padded)


@pytest.mark.parametrize("pattern", DISTINCT)
@settings(deadline=None, max_examples=100)
@given(before=TEXTS, text=TEXTS, after=TEXTS)
def test_what_stands_around_the_text_is_not_seen(
    pattern: str, before: str, text: str, after: str
) -> None:
    start = len(before.encode())
    stop = start + len(text.encode())
    ends = scan(pattern, (before + text + after).encode(), start, stop)
    sizes = np.diff([start, *ends]).tolist()
    assert sizes == [len(word.encode()) for word in expected(pattern, text)]


@pytest.mark.parametrize("pattern", DISTINCT)
@settings(deadline=None, max_examples=100)
@given(parts=st.lists(st.tuples(TEXTS, st.sampled_from([0, 1, 9])), max_size=6), last=TEXTS)
def test_no_word_crosses_a_special_token(
    pattern: str, parts: list[tuple[str, int]], last: str
) -> None:
    """They stand in the stream with their number; one without bytes is the end of a document."""
    data, specials, stream = b"", [], []
    for text, special in [*parts, (last, None)]:
        for word in expected(pattern, text):
            data += word.encode()
            stream.append(len(data))
        if special is not None:
            token = b"" if special == 9 else b"'special" + b"!" * special
            specials.append((len(data), len(data) + len(token), special))
            data += token
            stream.append((special + 1) << SPECIAL_SHIFT | len(data))
    found = np.array(specials, np.int64).reshape(-1, 3)
    assert scan(pattern, data, 0, len(data), found) == stream


@pytest.mark.parametrize("pattern", DISTINCT)
@pytest.mark.parametrize(
    ("alphabet", "length"),
    [("'lLs ", 6), (" \n\ra!", 6), ("aA中\u0301'", 6), ("1 a\u00a0\n/", 5), ("'rReEvV", 4)],
)
def test_every_short_text(pattern: str, alphabet: str, length: int) -> None:
    """All of them in one scan, each a document of its own."""
    texts = ["".join(t) for n in range(1, length + 1) for t in product(alphabet, repeat=n)]
    borders = np.cumsum([len(text.encode()) for text in texts])
    specials = np.stack([borders, borders, np.zeros_like(borders)], axis=1)
    data = "".join(texts).encode()
    ends = [end for end in scan(pattern, data, 0, len(data), specials) if not end >> SPECIAL_SHIFT]
    words = [word for text in texts for word in expected(pattern, text)]
    assert ends == np.cumsum([len(word.encode()) for word in words]).tolist()


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "gpt4o"])
def test_contractions_across_block_borders(pattern: str) -> None:
    for pad, filler, tail in product(
        range(55, 68), ["a", " ", "!", "a ", "é"], [*CONTRACTIONS, "'llx", "'re1", "'ve 'd", "'s\n"]
    ):
        text = (filler * pad)[:pad] + tail
        assert scanned(pattern, text) == expected(pattern, text)
        assert scanned(pattern, text + "b" * 70) == expected(pattern, text + "b" * 70)


def all_characters() -> Iterator[str]:
    return (chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)


@cache
def category_borders() -> list[str]:
    """Characters whose category differs from that of a neighbour."""
    borders = []
    for before, character in pairwise(all_characters()):
        if unicodedata.category(before) != unicodedata.category(character):
            borders += [before, character]
    return borders


@pytest.mark.parametrize("pattern", DISTINCT)
def test_all_of_unicode_in_one_text(pattern: str) -> None:
    text = "".join(all_characters())
    assert scanned(pattern, text) == expected(pattern, text)


@pytest.mark.parametrize("pattern", DISTINCT)
def test_characters_of_every_category_beside_each_kind(pattern: str) -> None:
    characters = category_borders()
    assert len(characters) > 3000
    for other in ["'", "a", "A", " ", "1", "\n", "!", "\u0301"]:
        text = other + other.join(characters)
        assert scanned(pattern, text) == expected(pattern, text)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", DISTINCT)
@pytest.mark.parametrize("other", ["'", "a", "A", " ", "1", "\n", "!", "\u0301", " '"])
def test_all_of_unicode_beside_each_kind(pattern: str, other: str) -> None:
    text = other.join(all_characters())
    assert scanned(pattern, text) == expected(pattern, text)


@pytest.mark.parametrize("pattern", DISTINCT)
@pytest.mark.parametrize("name", TEXT_FILES)
def test_real_text(pattern: str, name: str) -> None:
    text = shared_text(name)
    assert scanned(pattern, text) == expected(pattern, text)


@pytest.mark.parametrize("pattern", ["llama3", "none"])
@settings(deadline=None)
@given(text=TEXTS)
def test_the_other_names(pattern: str, text: str) -> None:
    assert scanned(pattern, text) == expected(pattern, text)


def test_every_named_pattern_has_a_scanner() -> None:
    assert set(SCANNERS) == set(PATTERN_NAMES)
    assert not Scanner(r"\w+|\W+").is_named


@settings(deadline=None)
@given(text=TEXTS)
def test_any_other_expression_is_left_to_the_regex_package(text: str) -> None:
    assert scanned(r"(?<=a)b|\s+|\S+?", text) == expected(r"(?<=a)b|\s+|\S+?", text)
