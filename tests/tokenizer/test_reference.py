"""The reference against the worked example, against tiktoken, and against its own promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError
from trafo.tokenizer.reference import (
    decode_reference,
    encode_reference,
    split_specials,
    train_bpe_reference,
)

LOW_LOWER = " ".join(["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6)
LOW_LOWER_MERGES = [
    *["s t", "e st", "o w", "l ow", "w est", "n e"],
    *["ne west", "w i", "wi d", "wid est", "low e", "lowe r"],
]


def test_worked_example() -> None:
    vocab, merges = train_bpe_reference(LOW_LOWER, 256 + 12, [], pattern="whitespace")
    assert [b" ".join(pair).decode() for pair in merges] == LOW_LOWER_MERGES
    assert vocab[256] == b"st"
    assert [vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    ids = encode_reference("newest", vocab, merges, pattern="whitespace")
    assert [vocab[i] for i in ids] == [b"newest"]


def test_training_stops_when_no_pair_is_left() -> None:
    vocab, merges = train_bpe_reference("ab ab", 1000, ["<s>"], pattern="whitespace")
    assert merges == [(b"a", b"b")]
    assert vocab[257] == b"<s>"
    assert len(vocab) == 258


def test_ties_go_to_the_greater_pair_of_byte_strings() -> None:
    _, merges = train_bpe_reference("ab cd ba", 259, [], pattern="whitespace")
    assert merges == [(b"c", b"d"), (b"b", b"a"), (b"a", b"b")]


def test_special_tokens_take_no_part_in_counting() -> None:
    _, merges = train_bpe_reference("<s>ab<s>cd<s>", 400, ["<s>"], pattern="none")
    assert merges == [(b"c", b"d"), (b"a", b"b")]


def test_of_overlapping_special_tokens_the_longest_matches() -> None:
    specials = ["<|a|>", "<|a|><|a|>"]
    assert split_specials("x<|a|><|a|><|a|>", specials) == ["x", "<|a|><|a|>", "<|a|>"]
    vocab, merges = train_bpe_reference("", 258, specials)
    assert encode_reference("<|a|><|a|>x<|a|>", vocab, merges, specials) == [257, 120, 256]


def test_special_tokens_missing_from_the_vocabulary_are_appended() -> None:
    vocab, merges = train_bpe_reference("", 256, [])
    assert encode_reference("<b><a>", vocab, merges, ["<a>", "<b>", "<a>"]) == [257, 256]


@pytest.mark.parametrize(
    ("vocab_size", "specials", "says"),
    [(256, ["<s>"], "need 257"), (0, [], "need 256"), (300, [""], "empty")],
)
def test_impossible_requests_are_refused(vocab_size: int, specials: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        train_bpe_reference("text", vocab_size, specials)


@settings(deadline=None)
@given(training=st.text(alphabet="ab é\n", max_size=60), text=st.text(max_size=40))
def test_decode_inverts_encode(training: str, text: str) -> None:
    vocab, merges = train_bpe_reference(training, 280, ["<s>"])
    for some in (training, text, f"{text}<s>{training}"):
        ids = encode_reference(some, vocab, merges, ["<s>"])
        assert decode_reference(ids, {**vocab}) == some


@settings(deadline=None)
@given(text=st.text(alphabet="aabc ", max_size=60))
def test_a_smaller_vocabulary_is_a_prefix_of_a_larger_one(text: str) -> None:
    _, few = train_bpe_reference(text, 260, [])
    _, many = train_bpe_reference(text, 266, [])
    assert many[: len(few)] == few


def test_half_a_character_decodes_to_the_replacement_character() -> None:
    vocab, _ = train_bpe_reference("", 256, [])
    assert decode_reference("é".encode()[:1], vocab) == "\ufffd"


@settings(deadline=None)
@given(training=st.text(alphabet="abc é\n", max_size=80), text=st.text(alphabet="abc é\n"))
def test_ids_equal_tiktokens(training: str, text: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    from trafo.tokenizer.patterns import pattern_regex

    vocab, merges = train_bpe_reference(training, 275, [])
    peer = tiktoken.Encoding(
        "peer",
        pat_str=pattern_regex("gpt2"),
        mergeable_ranks={token: i for i, token in vocab.items()},
        special_tokens={},
    )
    assert encode_reference(text, vocab, merges) == peer.encode(text)
