"""Named patterns against their spelling elsewhere; any expression must cover the text."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.patterns import (
    OTHER_SPELLINGS,
    PATTERN_NAMES,
    compile_pattern,
    pattern_name,
    pattern_regex,
    split_words,
)

# The letters that decide something: case, white space of all kinds, marks, numbers, apostrophes.
AWKWARD = st.text(alphabet="aAsStTlLdDéßſǅʰ中ا\u0301 \t\n\r\u00a0\u2028\x85\x1c'12²Ⅷ-/😀\u200d\x00")
# `regex` knows a newer Unicode than the 16.0 that we follow; Python knows an older one.
ASSIGNED = st.characters(exclude_categories=["Cn", "Cs"], exclude_characters="ʕ")
TEXTS = st.one_of(AWKWARD, st.text(ASSIGNED))


@pytest.mark.parametrize("name", PATTERN_NAMES)
@given(text=TEXTS)
def test_named_patterns_match_every_character(name: str, text: str) -> None:
    assert split_words(text, name) == regex.findall(pattern_regex(name), text)
    assert "".join(split_words(text, name)) == text


@pytest.mark.parametrize("spelling", list(OTHER_SPELLINGS))
@given(text=TEXTS)
def test_other_spellings_cut_alike(spelling: str, text: str) -> None:
    assert regex.findall(spelling, text) == split_words(text, pattern_name(spelling))


def test_what_the_patterns_are_known_for() -> None:
    assert split_words("I'll see  2024!\n\n x", "gpt2") == [
        *["I", "'ll", " see", " ", " 2024", "!", "\n\n", " x"]
    ]
    assert split_words("I'LL see  2024!\n\n x", "gpt4") == [
        *["I", "'LL", " see", " ", " ", "202", "4", "!\n\n", " x"]
    ]
    assert split_words("camelCase don't a/b/\n", "gpt4o") == [
        *["camel", "Case", " don't", " a", "/b", "/\n"]
    ]
    assert split_words(" a  b\n", "whitespace") == [" ", "a", "  ", "b", "\n"]
    assert split_words("a b\nc", "none") == ["a b\nc"]
    assert split_words("", "none") == []


@given(
    expression=st.sampled_from(
        [r"\d+", r"(a)(b)?", r"a*", r"(?<=a)b", r"\b", r"x|(?=y)", r"[ab]+?"]
    ),
    text=st.text(alphabet="aabbxy 12\n"),
)
def test_text_that_a_users_expression_leaves_out_becomes_words(expression: str, text: str) -> None:
    words = split_words(text, expression)
    assert "".join(words) == text
    assert all(words)


def test_words_are_whole_matches_whatever_is_captured() -> None:
    assert split_words("ab-ac", r"(a)(b|c)") == ["ab", "-", "ac"]


def test_characters_newer_than_unicode_16_belong_to_no_class() -> None:
    """U+11DE0 is a digit since Unicode 17, U+0CDC a letter; ʕ was a small letter until then."""
    assert split_words("a\U00011de0a", "gpt2") == ["a", "\U00011de0", "a"]
    assert split_words("1\U00011de0", r"\d+") == ["1", "\U00011de0"]
    assert split_words("a\u0cdca", r"\p{L}+|\p{Cn}") == ["a", "\u0cdc", "a"]
    assert split_words("ʕA", "gpt4o") == ["ʕ", "A"]


def test_an_invalid_expression_is_named_with_its_position() -> None:
    with pytest.raises(InputError, match=r"position 3"):
        compile_pattern(r"ab(")


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean llama3"):
        pattern_regex("lama3")
    with pytest.raises(InputError, match="no split pattern"):
        pattern_regex("")


def test_an_expression_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        pattern_regex("\ud800")


def test_names_survive_the_way_through_their_expression() -> None:
    for name in PATTERN_NAMES:
        assert pattern_regex(pattern_name(pattern_regex(name))) == pattern_regex(name)
    assert pattern_name(r"\d+") == r"\d+"
