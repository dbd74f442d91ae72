"""Special tokens in a text, against a plain alternation of the longest first."""

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.tokenizer.words import SpecialFinder

Found = list[tuple[int, int, str]]


def find(tokens: list[str], text: str) -> Found:
    """Byte offsets and the token that stands there."""
    specials = SpecialFinder(tokens)
    data = np.frombuffer(text.encode(), np.uint8)
    return [(a, b, tokens[i]) for a, b, i in specials.find(data, 0, len(data)).tolist()]


def expected(tokens: list[str], text: str) -> Found:
    longest_first = sorted(tokens, key=lambda token: len(token.encode()), reverse=True)
    found = regex.finditer("|".join(map(regex.escape, longest_first)), text)
    return [
        (len(text[: match.start()].encode()), len(text[: match.end()].encode()), match.group())
        for match in found
    ]


TOKENS = st.lists(
    st.text(alphabet="<|ab>é中", min_size=1, max_size=5), min_size=1, max_size=8, unique=True
)


@settings(deadline=None, max_examples=120)
@given(tokens=TOKENS, data=st.data())
def test_the_longest_at_each_place_from_the_left(tokens: list[str], data: st.DataObject) -> None:
    pieces = st.one_of(
        st.sampled_from(tokens), st.text(alphabet="<|ab>é中 \n", max_size=4), st.just("x" * 60)
    )
    text = "".join(data.draw(st.lists(pieces, max_size=30)))
    assert find(tokens, text) == expected(tokens, text)


@pytest.mark.parametrize(
    "tokens",
    [
        ["<|endoftext|>"],
        ["<|a|>", "<|a|><|a|>"],
        ["<", "<<", "<<<"],
        ["a", "ab", "abc", "b", "bcd"],
        ["é", "éé", "e"],
        ["中文", "中", "文中"],
        ["\x00", "\n\n"],
        ["x" * 63, "x" * 64, "x" * 65],
    ],
)
def test_overlapping_tokens_at_every_place_in_a_block(tokens: list[str]) -> None:
    for pad in range(131):
        text = "-" * pad + "".join(tokens) + tokens[-1] * 3 + tokens[0] + "a" * (pad % 3)
        assert find(tokens, text) == expected(tokens, text)


def test_a_token_that_is_cut_off_at_the_end_is_none() -> None:
    text = np.frombuffer(b"..<|endoftext|>", np.uint8)
    specials = SpecialFinder(["<|endoftext|>"])
    assert specials.find(text, 0, len(text) - 1).tolist() == []
    assert specials.find(text, 0, len(text)).tolist() == [[2, 15, 0]]
    assert specials.find(text, 3, len(text)).tolist() == []


def test_many_different_tokens() -> None:
    tokens = [f"<|{number}|>" for number in range(1000)] + [chr(0x400 + i) for i in range(200)]
    text = " ".join(reversed(tokens)) + "".join(tokens)
    assert len(find(tokens, text)) == 2400  # more than the search begins with room for
    assert find(tokens, text) == expected(tokens, text)


def test_without_tokens_nothing_is_found() -> None:
    assert find([], "<|endoftext|>") == []


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        SpecialFinder(["<s>", ""])


@pytest.mark.parametrize("token", ["", "a\ud800"])
def test_what_is_not_text_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="special token"):
        SpecialFinder([token])
    with pytest.raises(InputError, match="special token"):
        Tokenizer({i: bytes([i]) for i in range(256)}, [], [token])
