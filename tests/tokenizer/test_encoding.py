"""Text to ids, against the reference and against tiktoken."""

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.shared import TEXT_FILES, shared, shared_text

from trafo.tokenizer import encoding as encode_module
from trafo.tokenizer.patterns import PATTERN_NAMES, pattern_regex
from trafo.tokenizer.reference import encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

TRAINING = (
    "She'll sell 1234 sea-shells, y'all! WE'LL SEE.\n\n  Größe über 12 日本語 — don't.\t\r\n"
    "aaaa aaaaaaa abababab \x00\x00\x00 \u0301\u0301 /usr/lib/ http://x\n"
) * 3
SPECIALS = ["<|e|>", "<|e|><|e|>", "sea", " a"]
BYTES = {i: bytes([i]) for i in range(256)}

PIECES = st.one_of(
    st.text(alphabet="abSshel '129\n\r\t éöß日本\u0301😀-!/\x00\u00a0\u3000", max_size=12),
    st.sampled_from(TRAINING.split(" ")),
    st.sampled_from(SPECIALS),
    st.integers(1, 200).map(lambda size: "ab" * size),
    st.text(max_size=6),
)
TEXTS = st.lists(PIECES, max_size=15).map("".join)


@cache
def trained(pattern: str) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    return train_bpe_reference(TRAINING, 400, [], pattern)


@cache
def tokenizer(pattern: str, ignore_merges: bool = False) -> Tokenizer:
    vocab, merges = trained(pattern)
    return Tokenizer(vocab, merges, SPECIALS, pattern=pattern, ignore_merges=ignore_merges)


@pytest.mark.parametrize("ignore_merges", [False, True])
@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\w+|\W"])
@settings(deadline=None, max_examples=25)
@given(text=TEXTS)
def test_a_trained_tokenizer(pattern: str, ignore_merges: bool, text: str) -> None:
    vocab, merges = trained(pattern)
    expected = encode_reference(text, vocab, merges, SPECIALS, pattern, ignore_merges)
    assert tokenizer(pattern, ignore_merges).encode(text) == expected


MERGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=20)


@settings(deadline=None, max_examples=50)
@given(choices=MERGES, texts=st.lists(st.text(alphabet="ab\x00 ", max_size=150), max_size=5))
@example(choices=[(0, 0), (0, 4)], texts=["a" * 149, "a" * 64, "a" * 65])
def test_merges_in_any_order(choices: list[tuple[int, int]], texts: list[str]) -> None:
    """Not as training finds them, and in words so long that they go through a heap."""
    tokens = [b"a", b"b", b"\x00", b" "]
    merges = []
    for left, right in choices:
        pair = (tokens[left % len(tokens)], tokens[right % len(tokens)])
        if pair[0] + pair[1] not in tokens and len(pair[0] + pair[1]) < 40:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
    merges = merges[::-1]  # merges of tokens that only later ones make
    vocab = {**BYTES, **{256 + i: a + b for i, (a, b) in enumerate(merges)}}
    for pattern in ("none", "gpt2"):
        ours = Tokenizer(vocab, merges, pattern=pattern)
        for text in texts:
            assert ours.encode(text) == encode_reference(text, vocab, merges, pattern=pattern)


def test_words_around_every_limit() -> None:
    """15 bytes fit into a key, 64 are cached, up to 256 are merged without a heap."""
    vocab, merges = trained("none")
    for size in [*range(1, 20), *range(60, 70), *range(250, 262), 500]:
        for text in ("a" * size, ("ab" * size)[:size], ("日本語" * size)[:size], "\x00" * size):
            expected = encode_reference(text, vocab, merges, SPECIALS, "none")
            assert tokenizer("none").encode(text) == expected
            assert tokenizer("none").encode(text) == expected  # now from the cache


def test_whole_words_are_taken_whatever_the_merges_say() -> None:
    """Also those of more than 15 and of more than 64 bytes, which no merge makes."""
    long = [b"abcdefghijklmnopqrst", b"x" * 70, b" x"]
    vocab = {**BYTES, **dict(enumerate([b"ab", *long], 256))}
    merges = [(b"a", b"b")]
    ours = Tokenizer(vocab, merges, ignore_merges=True)
    text = "abcdefghijklmnopqrst x ab abc\n" + "x" * 70
    expected = encode_reference(text, vocab, merges, ignore_merges=True)
    assert {257, 258, 259} < set(expected)
    assert ours.encode(text) == expected
    assert Tokenizer(vocab, merges).encode("x" * 70) == [120] * 70


@pytest.mark.parametrize("ignore_merges", [False, True])
@pytest.mark.parametrize("tail", ["", "-and-more-than-15-bytes"])
def test_more_distinct_words_than_the_cache_holds(
    monkeypatch: pytest.MonkeyPatch, ignore_merges: bool, tail: str
) -> None:
    monkeypatch.setattr(encode_module, "_CACHE_CAPACITY", 64)
    monkeypatch.setattr(encode_module, "_CACHE_ARENA", 1 << 10)
    monkeypatch.setattr(encode_module, "_LONG_IDS", 1 << 8)
    vocab, merges = trained("gpt2")
    ours = Tokenizer(vocab, merges, SPECIALS, ignore_merges=ignore_merges)
    text = " ".join(f"word{number % 977}{tail}<|e|>" for number in range(3000))
    expected = encode_reference(text, vocab, merges, SPECIALS, ignore_merges=ignore_merges)
    assert ours.encode(text) == expected
    assert ours.encode_array(text).tolist() == expected


@pytest.mark.slow
def test_more_distinct_words_than_the_cache_really_holds() -> None:
    vocab, merges = trained("gpt2")
    text = " ".join(f"w{number}" for number in range(300_000))
    expected = encode_reference(text, vocab, merges, SPECIALS)
    assert tokenizer("gpt2").encode_array(text).tolist() == expected


# Against tiktoken with the vocabularies of GPT-2 and of GPT-4


@cache
def gpt2() -> tuple[Tokenizer, Any]:
    tiktoken = pytest.importorskip("tiktoken")
    end = "<|endoftext|>"
    ours = Tokenizer.from_files(shared("gpt2/vocab.json"), shared("gpt2/merges.txt"), [end])
    ranks = {token: i for i, token in ours.vocab.items() if token != end.encode()}
    return ours, tiktoken.Encoding(
        "gpt2", pat_str=pattern_regex("gpt2"), mergeable_ranks=ranks, special_tokens={end: 50256}
    )


@cache
def cl100k() -> tuple[Tokenizer, Any]:
    tiktoken = pytest.importorskip("tiktoken")
    load = pytest.importorskip("tiktoken.load")
    path = shared("cl100k/cl100k_base.tiktoken")
    ours = Tokenizer.load(path, ["<|endoftext|>"])
    return ours, tiktoken.Encoding(
        "cl100k",
        pat_str=pattern_regex("gpt4"),
        mergeable_ranks=load.load_tiktoken_bpe(str(path)),
        special_tokens={"<|endoftext|>": ours.special_tokens["<|endoftext|>"]},
    )


PEERS = pytest.mark.parametrize("peer", [gpt2, cl100k])


@PEERS
@settings(deadline=None, max_examples=100)
@given(text=st.one_of(TEXTS, st.text()))
def test_ids_equal_tiktokens(peer: Any, text: str) -> None:
    ours, theirs = peer()
    text = f"{text}<|endoftext|>{text}"
    assert ours.encode(text) == theirs.encode(text, allowed_special="all")
    assert ours.encode(text, special="ignore") == theirs.encode_ordinary(text)


@PEERS
@pytest.mark.parametrize("name", TEXT_FILES)
def test_ids_of_real_text_equal_tiktokens(peer: Any, name: str) -> None:
    ours, theirs = peer()
    text = shared_text(name)
    ids = ours.encode_array(text)
    assert ids.tolist() == theirs.encode(text, allowed_special="all")
    assert ours.decode(ids) == text
    if len(text) < 2_000_000:
        assert list(ours.encode_iterable(text.splitlines(keepends=True))) == ids.tolist()


@PEERS
@pytest.mark.parametrize("other", [" ", "'", pytest.param("a1", marks=pytest.mark.slow)])
def test_all_of_unicode_gives_tiktokens_ids(peer: Any, other: str) -> None:
    ours, theirs = peer()
    text = other.join(chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)
    assert ours.encode(text) == theirs.encode_ordinary(text)
