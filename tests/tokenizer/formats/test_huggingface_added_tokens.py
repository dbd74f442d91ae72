"""Added tokens and the NFC normalizer of a tokenizer.json, against the tokenizers package."""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trafo.errors import FormatError, InputError
from trafo.tokenizer import encode_corpus as corpus_module
from trafo.tokenizer.encode_corpus import encode_files
from trafo.tokenizer.formats.gpt2 import to_printable
from trafo.tokenizer.formats.huggingface import read_huggingface
from trafo.tokenizer.formats.load import load_any
from trafo.tokenizer.formats.pre_tokenizer import write_pre_tokenizer
from trafo.tokenizer.patterns import normalize_nfc
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.tokenizer.words import Cutter, SpecialFinder

tokenizers = pytest.importorskip("tokenizers")

BYTES = {to_printable(bytes([byte])): byte for byte in range(256)}
NFC = {"type": "NFC"}
ATOMS = [
    "a",
    "b",
    " ",
    "ab",
    "e",
    "é",
    "e\u0301",
    "\u0327",
    "<",
    "New",
    "York",
    " York",
    "각",
    "\n",
]
TOKENS = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4).map("".join)
Load = Callable[..., tuple[Tokenizer, Any]]


def added(content: str, i: int, **flags: bool) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": i, "content": content, **dict.fromkeys(names, False), **flags}


def file_with(added_tokens: list[Any], **changes: Any) -> dict[str, Any]:
    """A tokenizer.json of 256 bytes and two merges."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {
        "type": "BPE",
        "vocab": {**BYTES, "ab": 256, "Ne": 257},
        "merges": ["a b", "N e"],
    }
    keys: dict[str, Any] = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    keys |= {"pre_tokenizer": byte_level, "decoder": byte_level, "model": model}
    return {"version": "1.0", "added_tokens": added_tokens, **keys, **changes}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Our tokenizer and the peer's of the same file."""

    def from_file(content: dict[str, Any]) -> tuple[Tokenizer, Any]:
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(content))
        peer = tokenizers.Tokenizer.from_file(str(path))
        return Tokenizer.load(path), peer

    return from_file


def drawn_file(data: st.DataObject, *, may_be_odd: bool = False) -> dict[str, Any]:
    """Random added tokens; odd ones have ids and flags that trafo may refuse."""
    odd = st.sampled_from([False] * 12 + [True]) if may_be_odd else st.just(False)
    contents = data.draw(st.lists(TOKENS, min_size=1, max_size=5, unique=not may_be_odd), "added")
    tokens, next_id = [], 258
    for content in contents:
        i = {**BYTES, "ab": 256}.get(content, next_id) + data.draw(odd)
        next_id += i >= next_id
        flags = {name: data.draw(odd) for name in ("single_word", "lstrip", "rstrip")}
        flags |= {name: data.draw(st.booleans(), name) for name in ("normalized", "special")}
        tokens.append(added(content, i, **flags))
    content = file_with(tokens, normalizer=data.draw(st.sampled_from([None, NFC]), "normalizer"))
    content["model"]["ignore_merges"] = data.draw(st.booleans(), "ignore_merges")
    return content


def drawn_text(data: st.DataObject, content: dict[str, Any]) -> str:
    parts = [*ATOMS, *(token["content"] for token in content["added_tokens"])]
    return data.draw(st.lists(st.sampled_from(parts), max_size=12).map("".join), "text")


def test_tokens_that_are_not_normalized_come_first(load: Load) -> None:
    tokens = [added("New York", 258, normalized=True), added("York", 259, special=True)]
    ours, peer = load(file_with(tokens))
    text = "New York, York"
    assert ours.encode("New York") == peer.encode("New York").ids == [257, 119, 32, 259]
    assert ours.prepare().encode(text) == peer.encode(text).ids


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_added_tokens_are_matched_as_in_tokenizers(tmp_path_factory: Any, data: Any) -> None:
    content = drawn_file(data, may_be_odd=True)
    path = tmp_path_factory.mktemp("added") / "tokenizer.json"
    path.write_text(json.dumps(content))
    peer = tokenizers.Tokenizer.from_file(str(path))
    try:
        ours = Tokenizer.load(path)
    except FormatError:  # an odd one; those refused by name are listed below
        return
    text = drawn_text(data, content)
    ids = peer.encode(text).ids
    assert ours.encode(text) == ids
    assert ours.prepare().encode(text) == ids
    assert Tokenizer.from_spec(ours.spec).encode_array(text * 900).tolist() == (
        peer.encode(text * 900).ids
    )
    # `tokenizers` decodes an added token that it can read in its byte alphabet as those bytes.
    if all(token["content"].isascii() for token in content["added_tokens"]):
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=False)
    ours.save(path.parent / "saved")
    for again in (path.parent / "saved", path.parent / "saved" / "tokenizer.json"):
        assert load_any(again) == ours.spec
    peer_again = tokenizers.Tokenizer.from_file(str(path.parent / "saved" / "tokenizer.json"))
    assert peer_again.encode(text).ids == ids


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "none", r"\d|[a-z]+"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_cut_changes_nothing(pattern: str, data: Any) -> None:
    """The ids of both sides of a cut are those of the whole, by the peer."""
    content = drawn_file(data)
    content["pre_tokenizer"] = write_pre_tokenizer(pattern, "here")
    peer = tokenizers.Tokenizer.from_str(json.dumps(content))
    whole = (drawn_text(data, content) + drawn_text(data, content)).encode()
    known = whole[: data.draw(st.integers(0, len(whole)), "known bytes")]
    nfc = content["normalizer"] is not None
    normalized = {
        normalize_nfc(token["content"]) if nfc else token["content"]
        for token in content["added_tokens"]
        if token["normalized"]
    }
    first = {token["content"] for token in content["added_tokens"] if not token["normalized"]}
    assume(not normalized & first)
    finder = SpecialFinder([*first, *normalized], second_pass=normalized, nfc=nfc)
    cutter = Cutter(pattern, finder)
    end, _ = cutter.cut(np.frombuffer(known, np.uint8), 0, len(known))
    places = [end, *([] if (place := cutter.last_safe_boundary(known)) is None else [place])]
    for place in places:
        left, right = whole[:place].decode(), whole[place:].decode()
        both = peer.encode(left).ids + peer.encode(right).ids
        assert both == peer.encode(left + right).ids


QWEN = [added("<|im_start|>", 258, special=True), added("<think>", 259)]
QWEN += [added("cafe\u0301 \u0301x", 260, normalized=True)]


@pytest.mark.parametrize("tokens", [QWEN, QWEN[:2], []], ids=["two passes", "qwen", "none"])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_nfc_of_a_text_in_pieces(tokens: list[Any], tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("nfc")
    (folder / "tokenizer.json").write_text(json.dumps(file_with(tokens, normalizer=NFC)))
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = Tokenizer.load(folder)
    parts = ["e", "\u0301", "e\u0301", "\u0327", " ", "x", "각", "가", "\u11a8", "中", "\u0344"]
    parts += [token["content"] for token in tokens]
    pieces = st.lists(st.sampled_from(parts), min_size=1, max_size=25).map("".join)
    text = data.draw(pieces, "text") * data.draw(st.sampled_from([1, 300]), "times")
    ids = peer.encode(text).ids
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4), "cuts"))
    divided = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert list(ours.encode_iterable(divided)) == ids
    if not tokens:
        assert list(ours.encode_iterable(divided, "ignore")) == ids
        assert ours.decode(ids) == peer.decode(ids) == normalize("NFC", text)
    (folder / "a.txt").write_bytes(text.encode())
    (folder / "b.txt").write_bytes(b"\xcc\x81 e")  # a mark: never composed with another file
    (folder / "c.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in divided))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "_CHUNK", 200)
        names = [folder / name for name in ("a.txt", "b.txt", "c.jsonl")]
        written = encode_files(ours, names, folder / "ids.bin")
    each = [peer.encode(t).ids for t in (text, "\u0301 e", *divided)]
    assert written.ids.tolist() == [i for ids in each for i in ids]
    assert written.manifest.num_bytes == 2 * len(text.encode()) + 4


def test_ignored_and_refused_tokens_are_those_of_the_normalized_text(load: Load) -> None:
    ours, peer = load(file_with([added("é!", 258, normalized=True)], normalizer=NFC))
    plain, _ = load(file_with([], normalizer=NFC))
    for tokenizer in (ours, ours.prepare()):
        assert tokenizer.encode("e\u0301!") == peer.encode("e\u0301!").ids == [258]
        assert tokenizer.encode("e\u0301!", "ignore") == plain.encode("e\u0301!")
        with pytest.raises(InputError, match="special token 'é!'"):
            tokenizer.encode("e\u0301!", "refuse")


def test_nfc_is_that_of_tokenizers() -> None:
    """Every character alone and among marks of several classes, whatever Unicode Python has."""
    peer = tokenizers.normalizers.NFC()
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for around in ("{}", "q\u0345{}\u0334", "a{}\u0301"):
        text = "\n".join(around.format(one) for one in every)
        assert normalize_nfc(text) == peer.normalize_str(text)


ACTIVE = "aeoqé\u0301\u0327\u0345\u0334\u0344\u07fd\u0898\u1ac1\U00011935\U00011930\U000105d2\u0307"


@settings(deadline=None, max_examples=300)
@given(st.text(st.one_of(st.sampled_from(ACTIVE + "각\u1100\u1161\u11a8\n"), st.characters())))
@example("\U000105d2\u0307\u0327")
def test_nfc_of_any_text(text: str) -> None:
    assume(not any("\ud800" <= character <= "\udfff" for character in text))
    assert normalize_nfc(text) == tokenizers.normalizers.NFC().normalize_str(text)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ([added("<m>", 300)], "'<m>': has the id 300, but `tokenizers` gives it the id 258"),
        ([added("<m>", 258), added("<n>", 260)], "'<n>': has the id 260, .* the id 259"),
        ([added("<n>", 259), added("<m>", 258)], "'<n>': has the id 259, .* the id 258"),
        ([added("ab", 258)], "'ab': has the id 258, .* the id 256"),
        ([added("<m>", 258), added("<m>", 258, special=True)], "'<m>': .* listed twice"),
        ([added("é", 233)], "'é': the vocabulary has this key for other bytes"),
        ([added("<m>", 258, lstrip=True)], "'<m>': trafo does not support lstrip"),
        ([added("<m>", 258, rstrip=True)], "'<m>': trafo does not support rstrip"),
        ([added("<m>", 258, single_word=True)], "'<m>': trafo does not support single_word"),
    ],
)
def test_added_tokens_that_are_refused(tmp_path: Path, tokens: list[Any], says: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file_with(tokens)))
    with pytest.raises(FormatError, match=says):
        read_huggingface(path)
    if "gives it the id" in says:  # and that is true
        peer = tokenizers.Tokenizer.from_file(str(path))
        last = tokens[-1] if tokens[0]["id"] == 258 else tokens[0]
        assert says.endswith(f"the id {peer.token_to_id(last['content'])}")


def test_flags_that_change_nothing_leave_the_hash_alone(load: Load) -> None:
    tokens = [added("<|endoftext|>", 258, special=True), added("  ", 259)]
    plain, _ = load(file_with(tokens))
    mixed, _ = load(file_with([tokens[0], {**tokens[1], "normalized": True}]))
    assert plain.hash == mixed.hash
    overlap, _ = load(file_with([tokens[0], added("> ", 259, normalized=True)]))
    apart, _ = load(file_with([tokens[0], added("> ", 259)]))
    assert overlap.hash != apart.hash
    with_nfc, _ = load(file_with(tokens, normalizer={"type": "Sequence", "normalizers": [NFC]}))
    assert with_nfc.hash != plain.hash


def test_truncation_and_padding_are_mentioned(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    ours, peer = load(file_with([], truncation=cut))
    assert "does not apply its truncation" in capsys.readouterr().err
    assert peer.encode("bbb").ids == ours.encode("bbb")[:2]
    pad = {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    load(file_with([], padding=pad))
    assert "does not apply its padding" in capsys.readouterr().err
