"""Pre-tokenizers as others write them, against `tokenizers`: the same words, or a refusal."""

import json
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trafo.errors import FormatError, InputError
from trafo.tokenizer.formats.pre_tokenizer import (
    check_read_alike,
    read_pre_tokenizer,
    write_pre_tokenizer,
)
from trafo.tokenizer.patterns import PATTERN_NAMES, compile_pattern, pattern_regex, split_words

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
TEXTS = st.one_of(
    st.text(alphabet="aAsſKkﬁßé中ก1٣²½Ⅷ \t\n\r\x0b\x85\u00a0\u2028.,'!/_-$^{[&\\\u0301😀\u200d"),
    st.text(st.characters(exclude_categories=["Cs"])),
)


def words_of_peer(pre_tokenizer: Any, text: str) -> list[str]:
    return [text[start:stop] for _, (start, stop) in pre_tokenizer.pre_tokenize_str(text)]


def with_byte_level(*steps: Any, use_regex: bool) -> tuple[str, Any, Any]:
    """Our pattern; the steps in `tokenizers` with and without the ByteLevel that comes last.

    ByteLevel reports where its words are in bytes of its own alphabet, so words are compared
    through the regular expression that it splits by.
    """
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    whole = pre.Sequence([*steps, byte_level])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = whole
    content = json.loads(tokenizer.to_str())["pre_tokenizer"]
    gpt2 = [pre.Split(tokenizers.Regex(pattern_regex("gpt2")), "isolated")] if use_regex else []
    return read_pre_tokenizer(content, "here"), whole, pre.Sequence([*steps, *gpt2])


@pytest.mark.parametrize("individual", [True, False])
@pytest.mark.parametrize("name", PATTERN_NAMES)
def test_digits_before_a_pattern_are_one_expression(name: str, individual: bool) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    steps = [pre.Digits(individual_digits=individual)]
    if name not in ("gpt2", "none"):
        steps.append(pre.Split(tokenizers.Regex(pattern_regex(name)), "isolated"))
    pattern, whole, alone = with_byte_level(*steps, use_regex=name == "gpt2")

    @settings(deadline=None, max_examples=60)
    @given(text=TEXTS)
    @example("in 12345 or 1234²٣ 1")
    def same_words(text: str) -> None:
        assume(text)
        ours = split_words(text, pattern)
        assert ours == words_of_peer(alone, text)
        assert len(ours) == len(whole.pre_tokenize_str(text))

    same_words()


@pytest.mark.parametrize("digits", [r"\p{N}", r"\p{N}+", r"\p{N}{1,3}"])
@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_digits_may_also_be_a_split(digits: str, text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(digits), "isolated")
    pattern, _, alone = with_byte_level(split, use_regex=True)
    assert split_words(text, pattern) == (words_of_peer(alone, text) if text else [])


SEQUENCES = [
    # DeepSeek V3's and Viking's kind of sequence, and one whose steps see each other's words.
    [r"\p{N}{1,3}", "[一-龥]+", r"[!-/][A-Za-z]+| ?[\p{P}\p{S}]+[\r\n]*|\s+(?!\S)|\s+"],
    [r" ?[^(\s|.,!?…)]+", r"\p{N}"],
    [r"\S+", "a", r"[\s\S](?![\s\S])", pattern_regex("gpt4")],
]


@pytest.mark.parametrize("use_regex", [True, False])
@pytest.mark.parametrize("expressions", SEQUENCES)
@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
@example("Das a-Haus, 12345 x!?  中文1\n\n a")
def test_a_sequence_splits_step_by_step(expressions: list[str], use_regex: bool, text: str) -> None:
    assume(text)
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    steps = [pre.Split(tokenizers.Regex(each), "isolated") for each in expressions]
    pattern, whole, alone = with_byte_level(*steps, use_regex=use_regex)
    words = split_words(text, pattern)
    assert words == words_of_peer(alone, text)
    back = json.dumps(write_pre_tokenizer(pattern, "here")["pretokenizers"][:-1])
    again = pre.Sequence(
        [
            pre.Split(tokenizers.Regex(step["pattern"]["Regex"]), "isolated")
            for step in json.loads(back)
        ]
    )
    assert words == words_of_peer(again, text)
    assert len(words) == len(whole.pre_tokenize_str(text))


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def test_sequences_inside_sequences_are_one_sequence() -> None:
    inner = {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]}
    outer = {"type": "Sequence", "pretokenizers": [inner]}
    assert read_pre_tokenizer(outer, "x") == read_pre_tokenizer(inner, "x")


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([{"type": "Punctuation"}, BYTE_LEVEL], "'Punctuation', 'ByteLevel'"),
        ([BYTE_LEVEL, DIGITS], "'ByteLevel', 'Digits'"),
        ([DIGITS, {"type": "Punctuation"}, BYTE_LEVEL], "'Digits', 'Punctuation', 'ByteLevel'"),
        ([{"type": "Whitespace"}], "'Whitespace'"),
        ([], r"\[\]"),
    ],
)
def test_other_sequences_are_refused_by_name(steps: list[Any], named: str) -> None:
    with pytest.raises(FormatError, match=named):
        read_pre_tokenizer({"type": "Sequence", "pretokenizers": steps}, "x")


# What Oniguruma and `regex` read alike


ATOMS = st.sampled_from(
    [
        *[r"\s", r"\S", r"\d", r"\D", r"\p{L}", r"\P{L}", r"\p{Lu}", r"\p{N}", r"\p{M}", r"\p{P}"],
        *[
            "[^a]",
            r"[a-k\s]",
            r"[^\r\n\p{L}\p{N}]",
            "[-a]",
            r"[\]\-]",
            r"[é中]",
            r"\u00e9",
            r"\x41",
        ],
        *["a", "A", "'", " ", ".", r"\.", r"\n", "(?i:'s|'ll)", "(?i:k)", "(?i:[sk])", "[&]", "_"],
        *["(?=a)", "(?!\\S)", "(?<=a)", "(?<!a)", "(?:a|1)", "(?>a|as)", "(1|s)", "#"],
    ]
)
SUFFIXES = st.sampled_from(
    ["", "", "", "?", "+", "*", "*?", "+?", "++", "?+", "{2}", "{1,3}", "{1,}"]
)
EXPRESSIONS = st.lists(
    st.lists(st.tuples(ATOMS, SUFFIXES).map("".join), min_size=1, max_size=4).map("".join),
    min_size=1,
    max_size=4,
).map("|".join)


@settings(deadline=None, max_examples=200)
@given(expression=EXPRESSIONS, texts=st.lists(TEXTS.filter(bool), min_size=1, max_size=4))
def test_what_is_accepted_is_read_alike(expression: str, texts: list[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    try:
        check_read_alike(expression, "here")
        compile_pattern(expression)
    except (FormatError, InputError):  # a plain word is taken for a name
        assume(False)
    peer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
    for text in texts:
        assert split_words(text, expression) == words_of_peer(peer, text)


@pytest.mark.parametrize("expression", [QWEN2, DEEPSEEK, *map(pattern_regex, PATTERN_NAMES[:5])])
def test_expressions_in_use_are_accepted_and_read_alike(expression: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    check_read_alike(expression, "here")
    peer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
    text = "We'll see: 12345 café,\t中文 don't\r\n\n  'S x²!! 😀\u0301 "
    assert split_words(text, expression) == words_of_peer(peer, text)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("^a", "b\na"),
        ("a$", "a\nb"),
        (r"\w+", ".½e"),
        (r"\h", "xa"),
        ("(?m:a.b)", "xa\nb"),
        ("(?i:ss)", "xß"),
        ("(?i:f(?:f))", "ﬀ"),
        ("[[a]b]", "xa"),
        ("[a&&b]", "xa"),
        (r"\p{N}{1,3}+", "1234"),
        ("a{2}?", "ba"),
        ("ba{,}", "ba{,}"),
        ("a*", "bc"),
        ("(?=a)", "ba"),
        ("b|(?:a|)", "cd"),
        (r"a\Z", "a\n"),
        ("a{e}", "bc"),
        (r"\pL", "pL"),
    ],
)
def test_what_is_read_differently_is_refused(expression: str, text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    with pytest.raises(FormatError, match="Oniguruma"):
        check_read_alike(expression, "here")
    peer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
    if expression != "(?i:f(?:f))":  # refused because it might be
        assert words_of_peer(peer, text) != split_words(text, expression)


@pytest.mark.parametrize(
    "expression", ["(?P<x>a)", "(?s:a)", "a**", "[]a]", "[a", "(a", "a)", "x{"]
)
def test_what_only_one_of_them_knows_is_refused(expression: str) -> None:
    with pytest.raises(FormatError):
        check_read_alike(expression, "here")
