"""The report's numbers against counts made the slow way, and its lists against known cases."""

import gzip
import json
import random
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tiktoken
from tests.shared import shared, shared_text

from trafo.errors import InputError
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.patterns import PATTERN_NAMES
from trafo.tokenizer.report import TextCounts, measure_tokenizer
from trafo.tokenizer.report.odd_tokens import (
    find_unreachable,
    format_token,
    is_boilerplate,
    is_mojibake,
    occurs_in_utf8,
)
from trafo.tokenizer.report.scripts import KINDS, classify_bytes
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.tokenizer.train import train_bpe

END = "<|endoftext|>"


def bytes_only(**changes) -> Tokenizer:
    """One token for each byte, and a special one."""
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], [END], **changes)


@pytest.fixture(scope="module")
def report(tokenizer, corpus):
    return measure_tokenizer(tokenizer, corpus, name="small")


# The numbers


def test_totals_are_what_python_counts(report, tokenizer, corpus):
    text = corpus.read_text()
    total = report.total
    assert total.num_bytes == len(text.encode())
    assert total.num_characters == len(text)
    assert total.num_words == len(text.replace(END, " ").split())
    assert total.num_tokens == len(tokenizer.encode(text))
    assert total.bytes_per_token == total.num_bytes / total.num_tokens
    assert total.characters_per_token == total.num_characters / total.num_tokens
    assert total.tokens_per_word == total.num_tokens / total.num_words


def test_ratio_agrees_with_tiktoken(tokenizer, report, corpus):
    text = corpus.read_text()
    ranks = {token: i for i, token in tokenizer.vocab.items() if i != tokenizer.special_tokens[END]}
    peer = tiktoken.Encoding(
        "small",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={END: tokenizer.special_tokens[END]},
    )
    ids = peer.encode(text, allowed_special="all")
    assert report.total.bytes_per_token == len(text.encode()) / len(ids)
    frequent = Counter(ids).most_common()
    assert {
        (t.id, t.count) for t in report.most_frequent if t.count > report.most_frequent[-1].count
    } <= set(frequent)
    assert [token.count for token in report.most_frequent] == [c for _, c in frequent[:10]]
    assert {token.id for token in report.never_used} == set(ranks.values()) - set(ids)


def test_chunks_do_not_show(tokenizer, tmp_path):
    rng = random.Random(3)
    words = ["cat", "Катя", "猫", "\n", " ", "  ", "12", "saß", END, "😀"]
    text = "".join(rng.choice(words) for _ in range(3000))
    path = tmp_path / "text.txt"
    path.write_text(text)
    whole = measure_tokenizer(tokenizer, path)
    cut = measure_tokenizer(tokenizer, path, chunk_size=100)
    assert cut.files == whole.files
    assert cut.scripts == whole.scripts
    assert cut.total.num_words == len(text.replace(END, " ").split())


def test_files_are_counted_apart(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("one two")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("три слова тут".encode()))
    report = measure_tokenizer(tokenizer, [tmp_path / "a.txt", tmp_path / "b.txt.gz"])
    one, other = report.files.values()
    assert (one.num_bytes, one.num_words) == (7, 2)
    assert (other.num_bytes, other.num_characters, other.num_words) == (24, 13, 3)
    assert report.total == one + other


def test_records_are_documents_of_their_own(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"body": "ab"}\n{"body": "cd"}\n')
    total = measure_tokenizer(bytes_only(), path, field="body").total
    assert total == TextCounts(num_bytes=4, num_characters=4, num_words=2, num_tokens=4)


def test_empty_and_damaged_text(tokenizer, tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match=r"empty\.txt: the text is empty"):
        measure_tokenizer(tokenizer, tmp_path / "empty.txt")
    (tmp_path / "wrong.txt").write_bytes(b"abc\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        measure_tokenizer(tokenizer, tmp_path / "wrong.txt")
    assert (
        measure_tokenizer(tokenizer, tmp_path / "wrong.txt", errors="replace").total.num_characters
        == 4
    )


# Scripts


def test_bytes_are_spent_on_the_scripts_they_belong_to(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(f"abc дом 猫が! 12 é😀{END}")
    shares = measure_tokenizer(bytes_only(), path).scripts
    found = {name: (share.num_bytes, share.num_tokens) for name, share in shares.items()}
    assert found == {
        "Latin": (5, 5),
        "Cyrillic": (6, 6),
        "Han": (3, 3),
        "Hiragana": (3, 3),
        "signs": (1, 1),
        "digits": (2, 2),
        "spaces": (4, 4),
        "emoji": (4, 4),
        "special tokens": (13, 1),
    }


def test_shares_add_up(report):
    assert sum(share.num_bytes for share in report.scripts.values()) == report.total.num_bytes
    assert sum(share.num_tokens for share in report.scripts.values()) == report.total.num_tokens


@pytest.mark.parametrize(
    "word", ["LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "THAI", "HANGUL"]
)
def test_scripts_agree_with_the_names_of_letters(word):
    letters = [
        chr(i)
        for i in range(0x110000)
        if unicodedata.category(chr(i)) in ("Lu", "Ll", "Lo")
        and unicodedata.name(chr(i), "").startswith(f"{word} ")
    ]
    text = "".join(letters)
    kinds = classify_bytes(np.frombuffer(text.encode(), np.uint8))
    assert len(letters) > 25
    assert {KINDS[kind] for kind in kinds.tolist()} == {word.capitalize()}


def test_every_character_has_a_kind():
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    kinds = classify_bytes(np.frombuffer(everything.encode(), np.uint8))
    assert len(kinds) == len(everything.encode())
    spaces = sum(
        len(c.encode())
        for c in everything
        if re.fullmatch(r"\s", c) and c not in "\x1c\x1d\x1e\x1f"
    )
    assert np.count_nonzero(kinds == KINDS.index("spaces")) == spaces


# Odd tokens


def test_the_bytes_that_utf8_never_uses():
    never = {i for i in range(256) if not occurs_in_utf8(bytes([i]))}
    assert never == {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert set(find_unreachable(bytes_only().spec)) == never


def test_fragments_of_characters_occur():
    text = "aé猫😀\u0800\U0010ffff"
    data = text.encode()
    pieces = {data[i:j] for i in range(len(data)) for j in range(i + 1, len(data) + 1)}
    assert all(map(occurs_in_utf8, pieces))
    for wrong in (b"\x80" * 4, b"\xc3a", b"\xe0\x80", b"\xed\xa0", b"\xf4\x90", b"a\x80"):
        assert not occurs_in_utf8(wrong)


def tokenizer_with(*merges: tuple[bytes, bytes], extra: bytes = b"", **changes) -> TokenizerSpec:
    tokens = [bytes([i]) for i in range(256)] + [left + right for left, right in merges]
    tokens += [extra] if extra else []
    return TokenizerSpec(dict(enumerate(tokens)), list(merges), **changes)


def reasons(spec: TokenizerSpec) -> dict[bytes, str]:
    return {
        spec.vocab[i]: why for i, why in find_unreachable(spec).items() if len(spec.vocab[i]) > 1
    }


def test_a_token_that_other_merges_prevent():
    # `bc` comes first, so that `ab` + `c` never meet.
    spec = tokenizer_with((b"b", b"c"), (b"a", b"b"), (b"ab", b"c"))
    assert reasons(spec) == {b"abc": "not made by the merges"}
    assert 258 not in Tokenizer.from_spec(spec).encode("abc abcabc xabcx")


def test_a_token_that_no_merge_makes():
    spec = tokenizer_with(extra=b"xyz")
    assert reasons(spec) == {b"xyz": "not made by the merges"}
    ignore_merges = tokenizer_with(extra=b"xyz", ignore_merges=True)
    assert reasons(ignore_merges) == {}
    assert Tokenizer.from_spec(ignore_merges).encode("xyz") == [256]


def test_a_token_that_the_pattern_cuts():
    spec = tokenizer_with((b"a", b" "), (b"\n", b" "), (b" ", b"a"))
    assert reasons(spec) == {b"a ": "cut by the pattern"}
    # gpt4 takes white space up to the last line end as one word, so `\n ` can stand in one.
    assert reasons(tokenizer_with((b"\n", b" "), pattern="gpt4")) == {}
    assert 256 in Tokenizer.from_spec(tokenizer_with((b"\n", b" "), pattern="gpt4")).encode("\n \n")


def test_reachable_tokens_are_reached(tokenizer):
    """All that training made, but for the 13 bytes, comes out of its own bytes."""
    unreachable = set(find_unreachable(tokenizer.spec))
    for i, token in tokenizer.vocab.items():
        try:
            text = token.decode()
        except UnicodeDecodeError:
            continue
        assert (tokenizer.encode(text) == [i]) == (i not in unreachable)


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\w+'|\W"])
def test_no_pattern_cuts_what_training_joined(tmp_path, pattern):
    """A pair is only counted inside a word, so every merge fits into one."""
    path = tmp_path / "text.txt"
    path.write_text("I'll we're they've d's IT'S x\n\n  \n y 1234 !!\n/\t\u00a0z A'll\r\n\r\n" * 3)
    spec = TokenizerSpec(*train_bpe(path, 500, pattern=pattern), pattern=pattern)
    assert len(spec.merges) > 15
    assert "cut by the pattern" not in find_unreachable(spec).values()


@pytest.mark.parametrize(
    "text", ["é", "’", "“", "à", "日", "ж", "Ω", "😀", "ß", "\u00a0", "ñ", "…"]
)
@pytest.mark.parametrize("wrong", ["cp1252", "latin-1"])
def test_double_encoding_is_mojibake(text, wrong):
    damaged = text.encode().decode(wrong)
    assert is_mojibake(damaged.encode())
    assert is_mojibake(f" so{damaged}".encode())


@pytest.mark.parametrize("token", ["ÃÂÃÂ", "�", "€™", "¿½", "â€"])
def test_what_splitting_leaves_of_mojibake(token):
    assert is_mojibake(token.encode())


@pytest.mark.parametrize(
    "token",
    [
        "São",
        "Übung",
        "être",
        "ÉTÉ",
        "Úžasný",
        "naïve",
        "Größe",
        "10 €",
        "¿Qué",
        "½",
        "§",
        "Łódź",
        "ÃO",
    ],
)
def test_real_words_are_no_mojibake(token):
    assert not is_mojibake(token.encode())
    assert not is_boilerplate(token.encode())


@pytest.mark.parametrize(
    "token",
    ["-" * 8, " " + "=" * 40, "-=-=-=-=", "https", "://", "www", ".html", "</", "<div", "&nbsp"],
)
def test_boilerplate(token):
    assert is_boilerplate(token.encode())


@pytest.mark.parametrize(
    "token", ["---", "...", " banana", "====", " the", "wwwa", "(a", "tingting", "1000"]
)
def test_no_boilerplate(token):
    assert not is_boilerplate(token.encode())


def test_gpt2_is_known_for_its_odd_tokens():
    gpt2 = Tokenizer.load(shared("gpt2"))
    report = measure_tokenizer(gpt2, shared("text/tinyshakespeare.txt"))
    peer = tiktoken.Encoding(
        "gpt2",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks={token: i for i, token in gpt2.vocab.items() if i < 50256},
        special_tokens={END: 50256},
    )
    ids = peer.encode_ordinary(shared_text("tinyshakespeare.txt"))
    assert report.total.num_tokens == len(ids)
    assert len(report.never_used) == 50256 - len(set(ids))
    assert len(report.unreachable) == 13
    assert {"ÃÂ", "�"} <= {token.content.decode() for token in report.mojibake}
    assert "-" * 64 in {token.content.decode() for token in report.boilerplate}
    assert len(report.longest[0].content) == 128


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b" the", "·the"),
        (b"\r\n\t", "␍↵→"),
        ("é".encode(), "é"),
        (b"\xc3", "<C3>"),
        (b"a\xe7\x8c", "a<E7><8C>"),
        (b"\x00", "<U+0000>"),
        (b" " * 80, "·×80"),
        (b" " + b"-" * 64, "·-×64"),
        (b"=-" * 8, "(=-)×8"),
        (b"--------", "--------"),
        (b"[bold]", "[bold]"),
    ],
)
def test_format_token(token, shown):
    assert format_token(token) == shown


def test_json_says_all(report):
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["total"]["bytes_per_token"] == report.total.bytes_per_token
    assert facts["scripts"]["Latin"]["num_tokens"] == report.scripts["Latin"].num_tokens
    assert len(facts["never_used"]) == len(report.never_used)
    assert facts["unreachable"][0] == {
        "id": 0xC0,
        "token": "<C0>",
        "num_bytes": 1,
        "count": 0,
        "why": "not UTF-8",
    }
