"""tokenizer.json, against the tokenizers package."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from trafo.errors import FormatError
from trafo.tokenizer.formats.gpt2 import to_printable
from trafo.tokenizer.formats.huggingface import read_huggingface, write_huggingface
from trafo.tokenizer.formats.load import (
    load_any,
)
from trafo.tokenizer.formats.spec import TokenizerSpec, hash_spec, with_special_tokens
from trafo.tokenizer.patterns import PATTERN_NAMES, pattern_regex

BYTES = {to_printable(bytes([byte])): byte for byte in range(256)}
Trained = Callable[..., TokenizerSpec]
Encode = Callable[[TokenizerSpec, str], list[int]]


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\d|[a-z]+"])
def test_tokenizer_json_loads_in_tokenizers(
    tmp_path: Path,
    pattern: str,
    texts: SearchStrategy[str],
    awkward: str,
    trained: Trained,
    encode: Encode,
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = trained(pattern)
    path = tmp_path / "tokenizer.json"
    write_huggingface(spec, path)
    peer = tokenizers.Tokenizer.from_file(str(path))
    assert hash_spec(read_huggingface(path)) == hash_spec(spec)

    @settings(deadline=None, max_examples=60)
    @given(text=texts)
    def same_ids(text: str) -> None:
        ids = encode(spec, text)
        assert peer.encode(text).ids == ids
        assert peer.decode(ids, skip_special_tokens=False) == text

    same_ids()
    assert peer.encode(awkward).ids == encode(spec, awkward)


def test_special_tokens_keep_their_ids_in_tokenizers(tmp_path: Path, trained: Trained) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    specials = {"<|far|>": 5000, "\n": 10, "<a>": 400}
    spec = with_special_tokens(trained(specials=[]), specials)
    write_huggingface(spec, tmp_path / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert peer.encode("<a>x\n<|far|>").ids == [400, ord("x"), 10, 5000]
    assert read_huggingface(tmp_path / "tokenizer.json") == spec


def peer_trained(tokenizers: Any, pre_tokenizer: Any, training: str) -> Any:
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = pre_tokenizer
    peer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|endoftext|>", "<|début fin|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    peer.train_from_iterator([training], trainer)
    return peer


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_what_tokenizers_wrote_is_read(
    tmp_path: Path, pattern: str, training: str, awkward: str, encode: Encode
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    steps = [byte_level]
    if pattern not in ("gpt2", "none"):
        steps = [pre.Split(tokenizers.Regex(pattern_regex(pattern)), "isolated"), byte_level]
    peer = peer_trained(tokenizers, pre.Sequence(steps), training)
    peer.save(str(tmp_path / "tokenizer.json"))
    spec = load_any(tmp_path)
    assert spec.pattern == ("gpt4" if pattern == "llama3" else pattern)
    assert encode(spec, awkward) == peer.encode(awkward).ids


def hugging_face_file(**changes: Any) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    content: dict[str, Any] = {
        "normalizer": None,
        "decoder": None,
        "pre_tokenizer": byte_level,
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {**BYTES, "ab": 256}, "merges": [["a", "b"]]},
    }
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(content[key], dict) else value
    return content


def split_by(pattern: dict[str, str], behavior: str = "Isolated", invert: bool = False) -> Any:
    byte_level = hugging_face_file()["pre_tokenizer"]
    split = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"normalizer": {"type": "NFKC"}}, "has the normalizer NFKC, which trafo does not"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}}, "Lowercase"),
        ({"decoder": {"type": "Metaspace"}}, "has the decoder Metaspace"),
        ({"pre_tokenizer": {"add_prefix_space": True}}, "add_prefix_space"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, r"pre-tokenizer \['Metaspace'\]"),
        ({"pre_tokenizer": split_by({"Regex": "a+"}, "Removed")}, "behavior 'Removed'"),
        ({"pre_tokenizer": split_by({"Regex": "a("})}, "position 2"),
        ({"pre_tokenizer": split_by({"Other": "a"})}, "Split pattern"),
        ({"pre_tokenizer": split_by({"Regex": r"a$"})}, r"not read '\$' alike"),
        ({"model": {"type": "WordPiece"}}, "'WordPiece'"),
        ({"model": {"vocab": None}}, "lacks its vocab"),
        ({"model": {"merges": [["a", "c"]]}}, "merge 1: 'ac' is not in the vocabulary"),
        ({"model": {"merges": [3]}}, "merge 1: a merge needs two"),
        ({"model": {"dropout": 0.1}}, "dropout = 0.1"),
        ({"model": {"byte_fallback": True}}, "byte_fallback"),
        ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
        ({"added_tokens": [{"id": 257, "content": "<m>", "lstrip": True}]}, "'<m>': .* lstrip"),
        ({"added_tokens": [{"id": 65, "content": "<m>"}]}, "has the id 65, but"),
        ({"added_tokens": [{"id": 65, "content": ""}]}, "content ''"),
        ({"added_tokens": ["x"]}, "content None"),
        ({"added_tokens": 7}, "the added tokens are not a list"),
    ],
)
def test_unsupported_tokenizer_json_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(hugging_face_file(**changes)))
    with pytest.raises(FormatError, match=says):
        read_huggingface(path)


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (split_by({"Regex": pattern_regex("gpt4")}, "Removed", invert=True), "gpt4"),
        (split_by({"Regex": r"\d"}), r"\d"),
        (split_by({"String": " ."}), r"(?:\ \.)"),
    ],
)
def test_splits_as_found_in_the_wild(tmp_path: Path, pre_tokenizer: Any, pattern: str) -> None:
    content = hugging_face_file()
    content["pre_tokenizer"] = pre_tokenizer
    content["model"]["merges"] = ["a b"]
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert load_any(tmp_path / "t.json").pattern == pattern
