"""Training gives the merges of the plain algorithm, however the text is stored, cut and shared."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.errors import ConfigError, InputError
from trafo.tokenizer.patterns import PATTERN_NAMES, split_words
from trafo.tokenizer.reference import Pair, train_bpe_reference
from trafo.tokenizer.train import train_bpe, train_tokenizer

END = "<|endoftext|>"
SPECIALS = [END, END + END, "<|e", " a b"]
MY_OWN = r"(?<=a)b|\s+|\S+"  # an expression that looks behind

AWKWARD = st.text("ab'sllre 中é\u0301\U0001f600 \t\r\n\u00a012!<|>", max_size=30)
PIECES = st.one_of(
    AWKWARD,
    st.text(max_size=8),
    st.sampled_from([*SPECIALS, "aaaa", "abab", "the lower lowest ", "\n\n"]),
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)


def documents() -> list[str]:
    """Some hundred kilobytes with many distinct words, ties and all kinds of characters."""
    rng = random.Random(1)
    letters = "etaoinshrdlu'" * 4 + "äé中文字א😀0123456789.,!"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(3000)]
    text = lambda: "".join(  # noqa: E731
        rng.choice(words) + rng.choice("     \n\t") for _ in range(rng.randint(0, 900))
    )
    return [text() for _ in range(80)]


DOCUMENTS = documents()
VOCAB_SIZE = 450


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.fixture(scope="module")
def expected() -> tuple[dict[int, bytes], list[Pair]]:
    """By the plain algorithm; documents are cut apart by the special token."""
    return train_bpe_reference(END.join(DOCUMENTS), VOCAB_SIZE, [END])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.txt", END.join(DOCUMENTS))


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, MY_OWN])
@settings(deadline=None, max_examples=40)
@given(
    text=TEXTS,
    num_merges=st.integers(0, 60),
    specials=st.lists(st.sampled_from(SPECIALS), max_size=5),
    chunk_size=st.sampled_from([1, 2, 3, 7, 64, 1 << 20]),
    num_workers=st.integers(1, 3),
)
@example(
    text="aaaaaaa aaaaaa aaaaa", num_merges=9, specials=[], chunk_size=3, num_workers=2
)  # a pair that overlaps itself
@example(text=END * 3, num_merges=3, specials=[END], chunk_size=5, num_workers=1)
def test_equals_the_reference(
    pattern: str,
    text: str,
    num_merges: int,
    specials: list[str],
    chunk_size: int,
    num_workers: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "hypothesis.txt", text)
    vocab_size = 256 + len(specials) + num_merges
    options = {"pattern": pattern, "chunk_size": chunk_size, "num_workers": num_workers}
    assert train_bpe(path, vocab_size, specials, **options) == train_bpe_reference(
        text, vocab_size, specials, pattern
    )


def test_the_worked_example(tmp_path: Path) -> None:
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6)
    path = write(tmp_path / "a.txt", text)
    # White space is a word of its own here, so that it is in no pair.
    _, merges = train_bpe(path, 256 + 12, pattern=r"\S+")
    assert [b" ".join(pair).decode() for pair in merges] == [
        *("s t", "e st", "o w", "l ow", "w est", "n e", "ne west"),
        *("w i", "wi d", "wid est", "low e", "lowe r"),
    ]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize("chunk_size", [64, 1 << 10, 100_003, 4 << 20])
def test_workers_and_chunks_do_not_matter(
    corpus: Path,
    expected: tuple[dict[int, bytes], list[Pair]],
    num_workers: int,
    chunk_size: int,
) -> None:
    options = {"num_workers": num_workers, "chunk_size": chunk_size}
    assert train_bpe(corpus, VOCAB_SIZE, [END], **options) == expected


@pytest.mark.parametrize("order", ["given", "reversed", "folder"])
def test_the_split_over_files_does_not_matter(
    tmp_path: Path, expected: tuple[dict[int, bytes], list[Pair]], order: str
) -> None:
    paths = [
        write(tmp_path / f"{i}.txt", END.join(DOCUMENTS[i::7])) for i in range(7)
    ]  # the end of a file splits words as the special token does
    inputs = {"given": paths, "reversed": paths[::-1], "folder": tmp_path}[order]
    assert train_bpe(inputs, VOCAB_SIZE, [END], chunk_size=5000) == expected


def as_jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"id": 1, "text": text}).encode() + b"\n" for text in texts)


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "a.txt.gz": lambda texts: gzip.compress(END.join(texts).encode()),
    "a.txt.zst": lambda texts: zstandard.compress(END.join(texts).encode()),
    "a.jsonl": as_jsonl,
    "a.jsonl.gz": lambda texts: gzip.compress(as_jsonl(texts)),
    "a.jsonl.zst": lambda texts: zstandard.compress(as_jsonl(texts)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chunk_size", [3000, 4 << 20])
def test_the_form_of_the_files_does_not_matter(
    tmp_path: Path,
    expected: tuple[dict[int, bytes], list[Pair]],
    name: str,
    chunk_size: int,
) -> None:
    path = write(tmp_path / name, FORMS[name](DOCUMENTS))
    assert train_bpe(path, VOCAB_SIZE, [END], chunk_size=chunk_size) == expected


def test_parquet_and_several_forms_at_once(
    tmp_path: Path, expected: tuple[dict[int, bytes], list[Pair]]
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"body": DOCUMENTS}), tmp_path / "a.parquet")
    one = train_bpe(tmp_path / "a.parquet", VOCAB_SIZE, [END], field="body", chunk_size=10_000)
    assert one == expected
    parquet.write_table(pyarrow.table({"text": DOCUMENTS[::2]}), tmp_path / "a.parquet")
    write(tmp_path / "b.jsonl.zst", zstandard.compress(as_jsonl(DOCUMENTS[1::4])))
    write(tmp_path / "c.txt", END.join(DOCUMENTS[3::4]))
    assert train_bpe(tmp_path, VOCAB_SIZE, [END]) == expected


def test_special_tokens_split_the_text_and_take_no_part(tmp_path: Path) -> None:
    """`ab` stands only across special tokens or inside them."""
    path = write(tmp_path / "a.txt", "a<ab>b" * 9 + "cd")
    vocab, merges = train_bpe(path, 300, ["<ab>"])
    assert merges == [(b"b", b"a"), (b"c", b"d"), (b"b", b"cd")]
    assert vocab[256 + len(merges)] == b"<ab>"


def test_ids_are_bytes_then_merges_then_special_tokens(corpus: Path) -> None:
    specials = ["<|pad|>", END, "<|pad|>", "é"]  # a doubled one counts once
    training = train_tokenizer(corpus, 400, specials)
    vocab, merges = training.spec.vocab, training.spec.merges
    assert list(vocab) == list(range(400))
    assert [vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [vocab[256 + i] for i in range(len(merges))] == [a + b for a, b in merges]
    assert [vocab[i] for i in range(397, 400)] == [b"<|pad|>", END.encode(), "é".encode()]
    assert training.spec.special_tokens == {"<|pad|>": 397, END: 398, "é": 399}


def test_a_smaller_vocabulary_is_a_prefix_of_a_larger_one(corpus: Path) -> None:
    large = train_bpe(corpus, 700)[1]
    for vocab_size in (256, 257, 300, 699):
        assert train_bpe(corpus, vocab_size)[1] == large[: vocab_size - 256]


@pytest.mark.parametrize("max_memory", [None, 64 << 20])
def test_a_vocabulary_larger_than_the_text_can_give(tmp_path: Path, max_memory: int | None) -> None:
    path = write(tmp_path / "a.txt", "abc abc")
    vocab, merges = train_bpe(path, 10_000, [END], max_memory=max_memory)
    assert (vocab, merges) == train_bpe_reference("abc abc", 10_000, [END])
    assert len(merges) == 3
    assert vocab[259] == END.encode()


@pytest.mark.parametrize("max_memory", [None, 64 << 20])
@pytest.mark.parametrize("content", [b"", b"a", b"a b", END.encode()])
def test_nothing_to_merge(tmp_path: Path, content: bytes, max_memory: int | None) -> None:
    path = write(tmp_path / "a.txt", content)
    vocab, merges = train_bpe(path, 300, [END], pattern="whitespace", max_memory=max_memory)
    assert merges == []
    assert len(vocab) == 257


def test_too_small_a_vocabulary_is_told_the_minimum(corpus: Path) -> None:
    with pytest.raises(InputError, match=r"vocabulary of 257 is too small.* need 258"):
        train_bpe(corpus, 257, [END, "<|pad|>"])
    assert train_bpe(corpus, 258, [END, "<|pad|>"])[1] == []
    with pytest.raises(InputError, match=r"vocabulary of 10,000,000,000,000 is too large"):
        train_bpe(corpus, 10**13, [END])


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_workers", -1), ("num_workers", 0), ("chunk_size", 0), ("chunk_size", -5)],
)
def test_numbers_that_mean_nothing(corpus: Path, option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{option}.*at least 1"):
        train_bpe(corpus, 300, **{option: value})


def test_what_training_reports(corpus: Path) -> None:
    training = train_tokenizer(corpus, 400, [END])
    text = corpus.read_text()
    words = [word for part in text.split(END) for word in split_words(part, "gpt2")]
    assert training.num_bytes == len(text.encode())
    assert training.num_words == len(words)
    assert training.num_distinct_words == len(set(words))
    assert set(training.seconds) == {"loading kernels", "counting", "merging"}
    assert training.peak_memory > 1 << 20


# Text that is not UTF-8

BROKEN = {
    "a lone byte": b"caf\xe9 au lait",
    "a continuation": b"a\x80b",
    "an overlong form": b"a\xc0\xafb",
    "a surrogate": b"a\xed\xa0\x80b",
    "too large": b"a\xf4\x90\x80\x80b",
    "half a character, then another": "a中".encode()[:-1] + "é b".encode(),
    "cut off at the end": "a b 中".encode()[:-1],
    "four bytes cut off at the end": "a b 😀".encode()[:-1],
    "only half a character": "é".encode()[:1],
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("before", [0, 10, 63, 64, 65, 1000, 1002])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_invalid_utf8_is_named_with_its_place(
    tmp_path: Path, what: str, before: int, num_workers: int
) -> None:
    data = ("ä b é d\n" * 200).encode()[:before].decode(errors="ignore").encode() + BROKEN[what]
    path = write(tmp_path / "broken.txt", data)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = error.start
    says = rf"broken\.txt: not UTF-8: byte 0x{data[place]:02x} at offset {place:,};"
    with pytest.raises(InputError, match=says):
        train_bpe(path, 300, chunk_size=64, num_workers=num_workers)
    with pytest.raises(InputError, match=says):
        train_bpe(path, 300, [END], pattern=MY_OWN)


def test_invalid_utf8_in_an_archive_is_named_with_its_place_in_the_text(tmp_path: Path) -> None:
    text = b"so far so good " * 5000
    path = write(tmp_path / "a.txt.gz", gzip.compress(text + b"\xff"))
    with pytest.raises(InputError, match=r"a\.txt\.gz: .*0xff at offset 75,000"):
        train_bpe(path, 300, chunk_size=1000)


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "none", MY_OWN])
@settings(deadline=None, max_examples=60)
@given(
    data=st.lists(
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from([b"ab ", b" ", b"\xe4\xb8", b"\xad", b"x<|e", b"\xf0\x9f\x98"]),
            AWKWARD.map(str.encode),
        ),
        max_size=20,
    ).map(b"".join),
    chunk_size=st.sampled_from([1, 2, 5, 16, 1 << 20]),
)
def test_replaced_text_is_as_python_decodes_it(
    pattern: str, data: bytes, chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "replaced.txt", data)
    text = data.decode(errors="replace")
    options = {"errors": "replace", "chunk_size": chunk_size, "pattern": pattern}
    assert train_bpe(path, 290, ["<|e"], **options) == train_bpe_reference(
        text, 290, ["<|e"], pattern
    )


# Counts that are kept


def fail_to_read(*_: object) -> None:
    raise AssertionError("the text was read again")


def test_more_merges_from_kept_counts_without_the_text(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: tuple[dict[int, bytes], list[Pair]],
) -> None:
    small = train_bpe(corpus, 300, [END], work_dir=tmp_path / "work")
    for way_to_read in ("inputs.read_file", "chunks.read_range"):
        monkeypatch.setattr(f"trafo.tokenizer.{way_to_read}", fail_to_read)
    large = train_bpe(corpus, VOCAB_SIZE, [END], work_dir=tmp_path / "work")
    assert large[1][: len(small[1])] == small[1]
    with pytest.raises(AssertionError, match="read again"):
        train_bpe(corpus, VOCAB_SIZE, [END])
    assert large == expected


@pytest.mark.parametrize("change", ["text", "pattern", "special tokens", "errors"])
def test_other_counts_are_not_taken_for_ours(corpus: Path, tmp_path: Path, change: str) -> None:
    work = tmp_path / "work"
    train_bpe(corpus, 300, [END], work_dir=work)
    if change == "text":
        corpus.write_text("something else entirely, else or other")
    options = {"pattern": "gpt4"} if change == "pattern" else {}
    specials = ["the"] if change == "special tokens" else [END]
    if change == "errors":
        corpus.write_bytes(corpus.read_bytes() + b"\xff\xff")
        with pytest.raises(InputError, match="not UTF-8"):
            train_bpe(corpus, 300, [END], work_dir=work)
        options = {"errors": "replace"}
    text = corpus.read_bytes().decode(errors="replace")
    assert train_bpe(corpus, 300, specials, work_dir=work, **options) == train_bpe_reference(
        text, 300, specials, options.get("pattern", "gpt2")
    )
