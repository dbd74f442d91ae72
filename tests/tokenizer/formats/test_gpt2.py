"""GPT-2's files, and the byte alphabet in which they are written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trafo.errors import FormatError
from trafo.tokenizer.formats.gpt2 import from_printable, read_gpt2, to_printable, write_gpt2
from trafo.tokenizer.formats.spec import TokenizerSpec

Trained = Callable[..., TokenizerSpec]
Encode = Callable[[TokenizerSpec, str], list[int]]


# The byte alphabet


def test_byte_alphabet() -> None:
    every = bytes(range(256))
    assert to_printable(b" the\n") == "ĠtheĊ"
    assert len(set(to_printable(every))) == 256
    assert from_printable(to_printable(every)) == every
    assert to_printable(every).isprintable()
    with pytest.raises(KeyError):
        from_printable("a b")


def test_byte_alphabet_is_that_of_tokenizers() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    assert set(alphabet) == set(to_printable(bytes(range(256))))
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "".join(map(chr, range(0x300)))
    assert byte_level.pre_tokenize_str(text)[0][0] == to_printable(text.encode())


# GPT-2


def test_gpt2_round_trip(tmp_path: Path, trained: Trained) -> None:
    spec = trained()
    write_gpt2(spec, tmp_path / "v.json", tmp_path / "m.txt")
    assert read_gpt2(tmp_path / "v.json", tmp_path / "m.txt", list(spec.special_tokens)) == spec


def test_gpt2_files_load_in_tokenizers(
    tmp_path: Path, awkward: str, trained: Trained, encode: Encode
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = trained(specials=[])
    vocab, merges = str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    write_gpt2(spec, vocab, merges)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocab, merges))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert peer.encode(awkward).ids == encode(spec, awkward)


BYTES = {to_printable(bytes([byte])): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("vocab", "merges", "says"),
    [
        (
            {**BYTES, "a b": 256},
            "",
            r"vocab\.json, token 'a b': the character ' ' is not in the byte alphabet",
        ),
        ({**BYTES, "ab": 65}, "", "the id 65 is also that of b'A'"),
        ({**BYTES, "ab": -1}, "", "-1 is not between"),
        ({**BYTES, "ab": 2**31}, "", "is not between"),
        ({**BYTES, "ab": 1.5}, "", "not a whole number"),
        ({**BYTES, "ab": True}, "", "not a whole number"),
        (BYTES, "#version: 0.2\na b\n", r"merges\.txt, line 2: 'ab' is not in the vocabulary"),
        (BYTES, "ab c\n", "line 1: 'ab' is not in the vocabulary"),
        ({**BYTES, "ab": 256}, "a b\n\na b\n", r"line 3: the merge is given twice; .*line 1"),
        ({**BYTES, "ab": 256}, "a b c\n", "line 1: a merge needs two tokens"),
        ({**BYTES, "ab": 256}, "a \n", "line 1: a merge needs two tokens"),
        ({**BYTES, "ab": 256}, "a 日\n", "'日' is not in the byte alphabet"),
    ],
)
def test_gpt2_errors_name_the_place(
    tmp_path: Path, vocab: dict[str, Any], merges: str, says: str
) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    with pytest.raises(FormatError, match=says):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"a": 1,\n "a": 2}', "'a' is given twice"),
        (b'{"a": 1,\n x}', "line 2, column 2: is not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"\xff": 1}', "not UTF-8 at byte 2"),
    ],
)
def test_json_errors_name_the_place(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "vocab.json").write_bytes(content)
    with pytest.raises(FormatError, match=says):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_gaps_in_ids_are_allowed(tmp_path: Path, encode: Encode) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({**BYTES, "ab": 1000}))
    (tmp_path / "merges.txt").write_text("a b\r\n")
    spec = read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt", ["<s>"])
    assert encode(spec, "ab<s>") == [1000, 1001]
