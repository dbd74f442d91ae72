"""Text without a place to cut: the work grows with its length, and the ids stay right.

Times are only compared with each other, never with a clock.
"""

import time
from functools import cache
from typing import Any

import pytest

from trafo.tokenizer.patterns import pattern_regex
from trafo.tokenizer.reference import encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

TRAINING = (
    "aaaa aaaaaaaa abab ababab     \n\n\n\n \u0301\u0301\u0301\u0301 日本語日本語 '''' ,,,, 1111 "
)
RUNS = {
    "one letter": "a",
    "spaces": " ",
    "newlines": "\n",
    "spaces and newlines": " \n",
    "combining marks": "\u0301",
    "Chinese": "日本語",
    "two letters": "ab",
    "apostrophes": "'",
    "contractions": "'ll",
    "commas": ",",
    "digits": "1",
    "capitals": "A",
    "capitals without end": "日A",
    "NUL": "\x00",
    "non-breaking spaces": "\u00a0",
    "special tokens begun": "<|",
}
SPECIALS = ["<|endoftext|>", "<|<|<|"]
PATTERNS = ["gpt2", "gpt4", "gpt4o", "whitespace", "none"]


@cache
def tokenizer(pattern: str) -> Tokenizer:
    vocab, merges = train_bpe_reference(TRAINING * 3, 320, [], pattern)
    return Tokenizer(vocab, merges, SPECIALS, pattern=pattern)


def seconds(encode: Any, argument: Any, repeats: int = 3) -> float:
    """The best of several, so that another program's work does not count."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        encode(argument)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("run", RUNS)
def test_the_ids_are_those_of_the_reference(pattern: str, run: str) -> None:
    ours = tokenizer(pattern)
    for size in (65, 300):
        text = (RUNS[run] * size)[:size]
        ids = encode_reference(text, ours.vocab, ours.merges, SPECIALS, pattern)
        assert ours.encode(text) == ids
        assert ours.encode_array(text).tolist() == ids
        assert list(ours.encode_iterable([text])) == ids


@pytest.mark.parametrize("run", RUNS)
def test_long_runs_give_tiktokens_ids(run: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ours = tokenizer("gpt2")
    specials = ours.special_tokens.values()
    ranks = {token: i for i, token in ours.vocab.items() if i not in specials}
    theirs = tiktoken.Encoding(
        "peer", pat_str=pattern_regex("gpt2"), mergeable_ranks=ranks, special_tokens={}
    )
    text = (RUNS[run] * 20_000)[:20_000]
    ids = theirs.encode_ordinary(text)
    assert ours.encode(text, special="ignore") == ids
    assert list(ours.encode_iterable([text], special="ignore")) == ids


WAYS: dict[str, Any] = {
    "encode_array": lambda ours: ours.encode_array,
    "encode_iterable": lambda ours: lambda text: sum(1 for _ in ours.encode_iterable([text])),
    "by character": lambda ours: lambda text: sum(1 for _ in ours.encode_iterable(text)),
}


@pytest.mark.parametrize("way", ["encode_array", "encode_iterable"])
@pytest.mark.parametrize(
    "run",
    [
        *["one letter", "spaces", "newlines", "combining marks", "Chinese", "two letters"],
    ],
)
def test_twenty_times_the_text_takes_about_twenty_times_as_long(run: str, way: str) -> None:
    assert_linear(WAYS[way](tokenizer("gpt2")), RUNS[run], 1_000_000)


def assert_linear(encode: Any, run: str, size: int) -> None:
    """A quadratic way would take four hundred times as long for twenty times the text."""
    text = (run * size)[:size]
    encode(text)  # makes the buffers
    short = max(seconds(encode, text[: size // 20]), 1e-4)
    assert seconds(encode, text, repeats=2) < 100 * short


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("run", RUNS)
def test_every_pattern_is_linear(run: str, pattern: str) -> None:
    for way in WAYS.values():
        assert_linear(way(tokenizer(pattern)), RUNS[run], 200_000)
