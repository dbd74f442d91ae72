"""Folders, hashes, and files of any format."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.shared import shared

from trafo.errors import FormatError, InputError, TrafoError
from trafo.tokenizer.formats.load import (
    detect_format,
    load_any,
    load_folder,
    load_training_facts,
    save_as,
    save_folder,
)
from trafo.tokenizer.formats.spec import TokenizerSpec, hash_spec, with_special_tokens
from trafo.tokenizer.formats.tiktoken import derive_merges
from trafo.tokenizer.patterns import PATTERN_NAMES, pattern_regex, split_words
from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

GPT2 = Path(__file__).parents[2] / "fixtures" / "gpt2"
Trained = Callable[..., TokenizerSpec]
Encode = Callable[[TokenizerSpec, str], list[int]]


# trafo's folder


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    specials=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True),
    pattern=st.sampled_from([*PATTERN_NAMES, r"\d+"]),
    ignore_merges=st.booleans(),
)
def test_folder_round_trip(
    tmp_path: Path, specials: list[str], pattern: str, ignore_merges: bool, training: str
) -> None:
    vocab, merges = train_bpe_reference(training, 300 + len(specials), specials, "gpt2")
    spec = with_special_tokens(TokenizerSpec(vocab, merges), specials)
    spec = replace(spec, pattern=pattern, ignore_merges=ignore_merges)
    save_folder(spec, tmp_path / "new" / "tok", {"seconds": 1.5})
    assert load_folder(tmp_path / "new" / "tok") == spec
    assert load_any(tmp_path / "new" / "tok") == spec
    assert load_training_facts(tmp_path / "new" / "tok") == {"seconds": 1.5}


def test_a_special_token_spelt_like_a_byte(tmp_path: Path, trained: Trained) -> None:
    spec = trained(specials=["a"])
    assert spec.special_tokens == {"a": max(spec.vocab)}
    save_folder(trained(), tmp_path)
    save_folder(spec, tmp_path)
    assert load_folder(tmp_path) == spec
    assert not (tmp_path / "tokenizer.json").exists()  # where it would become id 97


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "trafo.json"])
def test_changed_files_are_noticed(tmp_path: Path, name: str, trained: Trained) -> None:
    save_folder(trained(), tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    changed = {
        "vocab.json": text.replace('"!": 33', '"!": 900'),
        "merges.txt": text[:-1].rpartition("\n")[0],  # the last merge is lost
        "trafo.json": text.replace('"gpt2"', '"gpt4"'),
    }[name]
    (tmp_path / name).write_text(changed, encoding="utf-8")
    with pytest.raises(FormatError, match="changed or damaged"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "update trafo"),
        ({"format": "other"}, "does not describe"),
        ({"unicode": "18.0"}, "by Unicode 18.0, this trafo by Unicode 16.0"),
        ({"pattern": None}, "'pattern' is missing"),
        ({"special_tokens": {"<s>": "x"}}, "not a whole number"),
    ],
)
def test_other_versions_of_trafo_json(
    tmp_path: Path, change: dict[str, Any], says: str, trained: Trained
) -> None:
    save_folder(trained(), tmp_path)
    about = json.loads((tmp_path / "trafo.json").read_text(encoding="utf-8"))
    (tmp_path / "trafo.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(FormatError, match=says):
        load_folder(tmp_path)


# The hash


def test_hash_is_the_same_however_it_was_loaded(tmp_path: Path, trained: Trained) -> None:
    spec = trained("gpt4")
    for file_format, name in [
        ("trafo", "a"),
        ("huggingface", "b.json"),
        ("tiktoken", "c.tiktoken"),
    ]:
        save_as(spec, tmp_path / name, file_format)  # type: ignore[arg-type]
        assert detect_format(tmp_path / name) == file_format
        specials = spec.special_tokens
        loaded = load_any(tmp_path / name, pattern="gpt4", special_tokens=specials)
        assert hash_spec(loaded) == hash_spec(spec)
    assert hash_spec(replace(spec, pattern=pattern_regex("gpt4"))) == hash_spec(spec)


def test_hash_differs_with_every_part(trained: Trained) -> None:
    spec = trained()
    others = [
        spec,
        replace(spec, pattern="gpt4"),
        replace(spec, ignore_merges=True),
        replace(spec, merges=spec.merges[:-1]),
        replace(spec, merges=spec.merges[::-1]),
        replace(spec, special_tokens={}),
        replace(spec, vocab={**spec.vocab, 1000: b"x"}),
    ]
    assert len({hash_spec(other) for other in others}) == len(others)


# Any format


def test_detection_and_its_errors(tmp_path: Path, trained: Trained) -> None:
    spec = trained()
    save_as(spec, tmp_path / "gpt2", "gpt2")
    assert detect_format(tmp_path / "gpt2") == "gpt2"
    assert load_any(tmp_path / "gpt2").special_tokens == {
        "<|endoftext|>": spec.special_tokens["<|endoftext|>"]
    }
    assert load_any(tmp_path / "gpt2", special_tokens=[]).special_tokens == {}
    save_as(spec, tmp_path / "t.model", "tiktoken")
    assert detect_format(tmp_path / "t.model") == "tiktoken"
    for path, says in [("absent", "no such file"), ("empty", "no tokenizer"), ("x.txt", "knows")]:
        (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "x.txt").write_text("hello to you\n")
        with pytest.raises(InputError, match=says):
            detect_format(tmp_path / path)


def test_special_tokens_must_be_a_list_of_texts(trained: Trained) -> None:
    for wrong, says in [("<s>", "must be a list"), ([""], "empty"), ({"<s>": -1}, "between")]:
        with pytest.raises(TrafoError, match=says):
            with_special_tokens(trained(), wrong)  # type: ignore[arg-type]


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path, trained: Trained) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrafoError):
        save_folder(trained(), tmp_path / "file" / "tok")


# Real files


def gpt2_cases() -> list[tuple[str, list[int]]]:
    """Texts, and the ids that tiktoken gives for them."""
    return [(case["text"], case["ids"]) for case in json.loads((GPT2 / "ids.json").read_text())]


def test_texts_get_the_ids_of_gpt2(encode: Encode) -> None:
    spec = load_any(GPT2)
    ours = Tokenizer.from_spec(spec)
    for text, ids in gpt2_cases():
        assert ours.encode(text) == ids
        assert ours.decode(ids) == text
        assert encode(spec, text) == ids  # by the reference


def test_the_small_files_have_every_merge_that_their_texts_could_use() -> None:
    """So that equal ids are no accident."""
    whole, small = load_any(shared("gpt2")), load_any(GPT2)
    texts = [part for text, _ in gpt2_cases() for part in text.split("<|endoftext|>")]
    words = {word.encode() for text in texts for word in split_words(text)}
    usable = [pair for pair in whole.merges if any(b"".join(pair) in word for word in words)]
    assert small.merges == usable
    assert small.vocab.items() <= whole.vocab.items()
    ours = Tokenizer.from_spec(whole)
    assert [ours.encode(text) for text, _ in gpt2_cases()] == [ids for _, ids in gpt2_cases()]


def test_gpt2s_own_files_give_tiktokens_ids(tmp_path: Path, awkward: str, encode: Encode) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    shutil.copytree(shared("gpt2"), tmp_path / "gpt2")
    spec = load_any(tmp_path / "gpt2")
    assert (len(spec.vocab), len(spec.merges)) == (50257, 50000)
    peer = tiktoken.Encoding(
        "peer",
        pat_str=pattern_regex("gpt2"),
        mergeable_ranks=spec.ordinary_tokens(),
        special_tokens=spec.special_tokens,
    )
    assert encode(spec, awkward) == peer.encode(awkward, allowed_special={"<|endoftext|>"})
    assert derive_merges(spec.ordinary_tokens()) == (spec.merges, True)


def test_cl100k_gives_tiktokens_ids_in_both_spellings_of_its_pattern(
    awkward: str, encode: Encode
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    spec = load_any(shared("cl100k/cl100k_base.tiktoken"))
    assert spec.pattern == "gpt4"
    assert not spec.ignore_merges
    # As tiktoken 0.14 spells it; see the remark in patterns.py.
    spelling = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    )
    ranks = spec.ordinary_tokens()
    peer = tiktoken.Encoding(
        "peer", pat_str=spelling, mergeable_ranks=ranks, special_tokens=spec.special_tokens
    )
    endings = ["x \n  ", "x\n\t\r \n ", "\u3000\n\n  \u3000"]
    for text in [awkward, *endings]:
        assert encode(spec, text) == peer.encode(text, allowed_special="all")
