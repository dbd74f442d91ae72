"""The public face: every way to encode gives the same ids, and decoding gives the text back."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.errors import FormatError, InputError
from trafo.tokenizer.formats.gpt2 import write_gpt2
from trafo.tokenizer.reference import encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

TRAINING = "She'll sell 12 sea-shells, y'all!\n\n  Größe über 日本語 — don't. aaaa\t\r\n" * 3
SPECIALS = ["<|e|>", "<|e|><|e|>", "<|début fin|>"]
BYTES = {i: bytes([i]) for i in range(256)}

PIECES = st.one_of(
    st.text(alphabet="abSshel '129\n\r\t éöß日本\u0301😀-!/\x00\u00a0<|e|>", max_size=12),
    st.sampled_from(TRAINING.split(" ")),
    st.sampled_from(SPECIALS),
    st.text(max_size=6),
)
TEXTS = st.lists(PIECES, max_size=15).map("".join)
# Long enough to be cut in pieces on the way, of all that makes cutting hard.
LONG_PIECES = st.tuples(
    st.sampled_from(
        [
            "a",
            "word ",
            "日本",
            " \n\n!",
            "\n",
            " ",
            "<|e|>",
            "'",
            "'ll",
            "\u00a0!",
            "!\n",
            "A",
            "é'",
        ]
    ),
    st.integers(1, 9000),
).map(lambda pair: pair[0] * (pair[1] // len(pair[0])))
LONG_TEXTS = st.lists(st.one_of(LONG_PIECES, TEXTS), max_size=6).map("".join)


@cache
def tokenizer(pattern: str = "gpt2") -> Tokenizer:
    vocab, merges = train_bpe_reference(TRAINING, 350, SPECIALS, pattern)
    return Tokenizer(vocab, merges, SPECIALS, pattern=pattern)


def expected(text: str, pattern: str = "gpt2") -> list[int]:
    ours = tokenizer(pattern)
    return encode_reference(text, ours.vocab, ours.merges, SPECIALS, pattern)


def cut_anywhere(text: str, seed: int) -> Iterator[str]:
    choose = random.Random(seed)
    while text:
        size = choose.choice([0, 1, 2, 7, 100, 1024, 5000, 50_000])
        yield text[:size]
        text = text[size:]


# Encoding


@settings(deadline=None, max_examples=100)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 60), max_size=5))
def test_every_way_gives_the_ids_of_the_reference(text: str, cuts: list[int]) -> None:
    ours = tokenizer()
    ids = expected(text)
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[a:b] for a, b in zip(places, places[1:], strict=False)]  # noqa: RUF007
    assert ours.encode(text) == ids
    assert ours.encode_array(text).tolist() == ids
    assert list(ours.encode_iterable([text])) == ids
    assert list(ours.encode_iterable(text)) == ids  # one character at a time
    assert list(ours.encode_iterable(pieces)) == ids
    assert ours.encode_batch([text, *pieces]) == [ids, *map(expected, pieces)]


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "gpt4o", "whitespace", "none", r"\s+|\S+"])
@settings(deadline=None, max_examples=15)
@given(text=LONG_TEXTS, seed=st.integers(0, 1000))
@example(text="a" * 20_000, seed=0)
@example(text="a" * 20_000 + " b" * 9000, seed=1)
@example(text="\n\u00a0!" * 4000, seed=2)
def test_a_long_text_does_not_depend_on_how_it_is_cut(pattern: str, text: str, seed: int) -> None:
    ours = tokenizer(pattern)
    ids = ours.encode_array(text).tolist()
    assert ours.decode(ids) == text
    assert list(ours.encode_iterable([text])) == ids
    assert list(ours.encode_iterable(cut_anywhere(text, seed))) == ids
    assert ours.encode(text) == ids
    assert ours.encode_batch([text])[0] == ids


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "gpt4o"])
@pytest.mark.parametrize("piece", ["a b ", "日本語。", " \n\n!", "\u00a0!", "!\n", "<|e|>é", "'ll"])
def test_a_long_text_equals_the_reference(pattern: str, piece: str) -> None:
    """Which `encode_iterable` cuts into pieces of a few kilobytes."""
    text = piece * (30_000 // len(piece))
    ids = expected(text, pattern)
    assert list(tokenizer(pattern).encode_iterable([text])) == ids
    assert tokenizer(pattern).encode_array(text).tolist() == ids


def test_megabytes_are_cut_into_pieces_and_joined() -> None:
    line = "She'll sell 日本語 sea-shells \n\n\n! <|e|>" + "y'all" * 5
    ours, times = tokenizer(), 60_000
    once = expected(line)
    assert ours.encode_array(line * times).tolist() == once * times


def test_encode_iterable_is_lazy() -> None:
    taken = []

    def lines() -> Iterator[str]:
        for number in range(100_000):
            taken.append(number)
            yield f"line {number}\n"

    ids = tokenizer().encode_iterable(lines())
    first = [next(ids) for _ in range(4)]
    assert first == expected("line 0\nline 1\n")[:4]
    assert len(taken) < 5000


def test_the_kinds_of_results() -> None:
    ours = tokenizer()
    assert ours.encode("") == []
    assert ours.encode_batch([]) == []
    assert list(ours.encode_iterable([])) == list(ours.encode_iterable(["", ""])) == []
    assert all(type(i) is int for i in ours.encode("word word"))
    assert all(type(i) is int for i in ours.encode_iterable(["word word"]))
    for text in ("", "word", "word " * 10_000):
        array = ours.encode_array(text)
        assert array.dtype == np.uint32
        assert array.shape == (len(ours.encode(text)),)


def test_a_result_is_not_overwritten_by_the_next() -> None:
    ours = tokenizer()
    first, before = ours.encode_array("She'll"), ours.encode_array("She'll").tolist()
    ours.encode_array("y'all 12 日本語")
    assert first.tolist() == before


def test_many_threads_share_a_tokenizer() -> None:
    vocab, merges = train_bpe_reference(TRAINING, 350, SPECIALS)
    ours = Tokenizer(vocab, merges, SPECIALS)  # its cache is empty
    choose = random.Random(0)
    words = [*TRAINING.split(" "), *SPECIALS, *(f"n{n}" for n in range(500))]
    texts = [" ".join(choose.choices(words, k=choose.randrange(400))) for _ in range(200)]
    wanted = [expected(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(ours.encode, texts)) == wanted
            assert [ids.tolist() for ids in pool.map(ours.encode_array, texts)] == wanted
            assert list(pool.map(lambda text: list(ours.encode_iterable([text])), texts)) == wanted
            assert list(pool.map(ours.encode_batch, [texts[:50]] * 8)) == [wanted[:50]] * 8


# Decoding


@settings(deadline=None, max_examples=100)
@given(text=st.one_of(TEXTS, st.text()))
def test_decode_inverts_encode(text: str) -> None:
    ours = tokenizer()
    ids = ours.encode(text)
    assert ours.decode(ids) == text
    assert ours.decode(np.array(ids, np.uint32)) == text
    assert ours.decode(iter(ids)) == text
    assert ours.decode_bytes(ids) == text.encode()
    assert "".join(ours.decode_stream(ids)) == text


@settings(deadline=None, max_examples=300)
@given(choices=st.lists(st.one_of(st.integers(0, 999), st.sampled_from("é日😀\ufffd".encode()))))
def test_any_ids_decode(choices: list[int]) -> None:
    """Bytes in any order; what is not UTF-8 becomes U+FFFD, in the stream as in the whole."""
    ours = tokenizer()
    ids = [choice % ours.vocab_size for choice in choices]
    data = b"".join(ours.vocab[i] for i in ids)
    assert ours.decode_bytes(ids) == data
    assert ours.decode(ids) == data.decode("utf-8", errors="replace")
    pieces = list(ours.decode_stream(iter(ids)))
    assert "".join(pieces) == ours.decode(ids)
    assert all(pieces)


@given(text=st.text(alphabet="é日😀a", max_size=20))
def test_a_stream_yields_a_character_when_its_last_byte_is_there(text: str) -> None:
    assert list(tokenizer().decode_stream(iter(text.encode()))) == list(text)


def test_a_stream_says_what_it_knows_at_once() -> None:
    came = []

    def ids() -> Iterator[int]:
        for i in tokenizer().encode("日本 a b"):
            came.append(i)
            yield i

    stream = tokenizer().decode_stream(ids())
    assert next(stream)
    assert len(came) < len(tokenizer().encode("日本 a b"))


@pytest.mark.parametrize("wrong", [999, -1, 10**12])
def test_an_unknown_id_is_named(wrong: int) -> None:
    for decode in (tokenizer().decode, tokenizer().decode_bytes):
        with pytest.raises(InputError, match=f"{wrong} is not an id"):
            decode([65, wrong])
    with pytest.raises(InputError, match=f"{wrong} is not an id"):
        list(tokenizer().decode_stream([65, wrong]))


# Special tokens


WAYS: list[Any] = [
    lambda ours, text, special: ours.encode(text, special=special),
    lambda ours, text, special: ours.encode_array(text, special=special).tolist(),
    lambda ours, text, special: ours.encode_batch([text], special=special)[0],
    lambda ours, text, special: list(ours.encode_iterable([text], special=special)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("padding", ["", "x " * 10_000])
def test_special_tokens_are_allowed_ignored_or_refused(way: Any, padding: str) -> None:
    ours = tokenizer()
    text = f"{padding}a<|e|>b<|début fin|>"
    plain = encode_reference(text, ours.vocab, ours.merges)
    assert way(ours, text, "allow") == expected(text)
    assert set(ours.special_tokens.values()) & set(expected(text))
    assert way(ours, text, "ignore") == plain
    assert ours.decode(plain) == text
    with pytest.raises(InputError, match=r"<\|e\|>"):
        way(ours, text, "refuse")
    assert way(ours, padding + "a <|e b", "refuse") == expected(padding + "a <|e b")
    for harmless in ("a", text):
        with pytest.raises(InputError, match="bogus"):
            way(ours, harmless, "bogus")


def test_a_special_token_cut_in_two_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"<\|e\|>"):
        list(tokenizer().encode_iterable(["a<|", "e|>"], special="refuse"))


def test_special_tokens_missing_from_the_vocabulary_are_appended() -> None:
    ours = Tokenizer({**BYTES, 300: b"<b>"}, [], ["<a>", "<b>", "<a>", "<c>"])
    assert ours.special_tokens == {"<a>": 301, "<b>": 300, "<c>": 302}
    assert ours.encode("<c><a>x<b>") == [302, 301, ord("x"), 300]
    assert ours.decode([302, 301, ord("x"), 300]) == "<c><a>x<b>"
    assert ours.vocab_size == 303


def test_of_overlapping_special_tokens_the_longest_is_taken() -> None:
    ours = Tokenizer(BYTES, [], ["<|e|>", "<|e|><|e|>", "|>"])
    assert ours.encode("<|e|><|e|><|e|>|>e") == [257, 256, 258, ord("e")]


def test_a_special_token_may_be_an_ordinary_token_too() -> None:
    vocab, merges = {**BYTES, 256: b"ab"}, [(b"a", b"b")]
    ours = Tokenizer(vocab, merges, ["ab", "x"])
    assert ours.special_tokens == {"ab": 256, "x": ord("x")}
    for special in ("allow", "ignore"):
        assert ours.encode("abxab", special=special) == [256, ord("x"), 256]


@settings(deadline=None, max_examples=100)
@given(
    specials=st.lists(st.text(alphabet="<>ab é", min_size=1, max_size=4), max_size=5),
    text=st.text(alphabet="<>ab é\n", max_size=40),
)
def test_any_special_tokens(specials: list[str], text: str) -> None:
    vocab, merges = train_bpe_reference("abab ab", 260, [])
    ours = Tokenizer(vocab, merges, specials)
    ids = encode_reference(text, vocab, merges, specials)
    assert ours.encode(text) == ids
    assert list(ours.encode_iterable(text)) == ids
    assert ours.decode(ids) == text


# What cannot be encoded


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("padding", ["", "x" * 10_000])
def test_surrogates_are_refused(way: Any, padding: str) -> None:
    with pytest.raises(InputError, match=r"U\+D83D"):
        way(tokenizer(), padding + "a\ud83d", "allow")


@pytest.mark.parametrize("way", WAYS)
def test_a_byte_that_the_vocabulary_lacks_is_named(way: Any) -> None:
    ours = Tokenizer({97: b"a", 32: b" "}, [])
    assert way(ours, "a aa", "allow") == [97, 32, 97, 97]
    for text in ("ab", "a " * 6000 + "b"):
        with pytest.raises(InputError, match="0x62"):
            way(ours, text, "allow")
    assert way(ours, "a aa", "allow") == [97, 32, 97, 97]  # as good as before


def test_merges_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(FormatError, match="lacks"):
        Tokenizer(BYTES, [(b"a", b"b")])


# On disk


def test_saved_and_loaded(tmp_path: Path) -> None:
    ours = tokenizer("gpt4o")
    ours.save(tmp_path / "tokenizer")
    loaded = Tokenizer.load(tmp_path / "tokenizer")
    assert loaded.hash == ours.hash
    text = TRAINING + "<|e|>"
    assert loaded.encode(text) == ours.encode(text) == expected(text, "gpt4o")
    assert ours.hash[:12] in repr(loaded)
    assert tokenizer("gpt2").hash != ours.hash


def test_gpt2_files(tmp_path: Path) -> None:
    vocab, merges = train_bpe_reference(TRAINING, 300, [])
    paths = (tmp_path / "vocab.json", tmp_path / "merges.txt")
    write_gpt2(Tokenizer(vocab, merges).spec, *paths)
    loaded = Tokenizer.from_files(*paths, ["<|e|>"])
    text = "She'll<|e|> sell"
    assert loaded.encode(text) == encode_reference(text, vocab, merges, ["<|e|>"])
