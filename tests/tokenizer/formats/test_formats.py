"""Files in and out, against the programs whose formats they are."""

import json
import shutil
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trafo.errors import FormatError, InputError, TrafoError
from trafo.tokenizer.formats.byte_alphabet import from_printable, to_printable
from trafo.tokenizer.formats.gpt2 import read_gpt2, write_gpt2
from trafo.tokenizer.formats.huggingface import read_huggingface, write_huggingface
from trafo.tokenizer.formats.load import (
    detect_format,
    load_any,
    load_folder,
    load_training_facts,
    save_as,
    save_folder,
)
from trafo.tokenizer.formats.spec import TokenizerSpec, content_hash, with_special_tokens
from trafo.tokenizer.formats.tiktoken import read_tiktoken, recover_merges, write_tiktoken
from trafo.tokenizer.patterns import PATTERN_NAMES, pattern_regex, split_words
from trafo.tokenizer.reference import encode_reference, train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

DATA = Path(__file__).parents[4] / "shared" / "data"
GPT2 = Path(__file__).parents[2] / "fixtures" / "gpt2"

TRAINING = "She'll sell 1234 sea-shells, y'all!\n\n  Größe über 12 日本語 — don't.\t\r\n" * 3
SPECIALS = ["<|endoftext|>", "<|début fin|>"]
AWKWARD = (
    "She'LL sell\u00a0 99999 \n \n  x  '\u017f ǅungla éa\u0301 日本語日"
    " <|endoftext|>ok<|début fin|> \n  "
)
TEXTS = st.text(
    alphabet="Shelsa '1239\n\r\t éöß日本\u0301😀-!/<|endoftext|>\u00a0\u2028", max_size=50
)


def trained(pattern: str = "gpt2", specials: list[str] = SPECIALS) -> TokenizerSpec:
    vocab, merges = train_bpe_reference(TRAINING, 320, specials, pattern)
    return with_special_tokens(TokenizerSpec(vocab, merges, pattern=pattern), specials)


def encode(spec: TokenizerSpec, text: str) -> list[int]:
    specials = list(spec.special_tokens)
    whole = spec.whole_words
    return encode_reference(text, spec.vocab, spec.merges, specials, spec.pattern, whole)


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


def test_gpt2_round_trip(tmp_path: Path) -> None:
    spec = trained()
    write_gpt2(spec, tmp_path / "v.json", tmp_path / "m.txt")
    assert read_gpt2(tmp_path / "v.json", tmp_path / "m.txt", SPECIALS) == spec


def test_gpt2_files_load_in_tokenizers(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = trained(specials=[])
    vocab, merges = str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    write_gpt2(spec, vocab, merges)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocab, merges))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert peer.encode(AWKWARD).ids == encode(spec, AWKWARD)


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
        ({**BYTES, "ab": 256}, "a b\n\na b\n", r"line 3: the merge comes twice; .*line 1"),
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
        (b'{"a": 1,\n "a": 2}', "'a' comes twice"),
        (b'{"a": 1,\n x}', "line 2, column 2: is not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"\xff": 1}', "not UTF-8 at byte 2"),
    ],
)
def test_json_errors_name_the_place(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "vocab.json").write_bytes(content)
    with pytest.raises(FormatError, match=says):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_gaps_in_ids_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({**BYTES, "ab": 1000}))
    (tmp_path / "merges.txt").write_text("a b\r\n")
    spec = read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt", ["<s>"])
    assert encode(spec, "ab<s>") == [1000, 1001]


# tiktoken


def test_tiktoken_round_trip(tmp_path: Path) -> None:
    spec = trained("gpt4")
    write_tiktoken(spec, tmp_path / "a.tiktoken")
    assert read_tiktoken(tmp_path / "a.tiktoken", "gpt4", spec.special_tokens) == spec


@settings(deadline=None, max_examples=50)
@given(text=TEXTS, training=TEXTS)
def test_merges_recovered_from_ranks_are_the_trained_ones(text: str, training: str) -> None:
    vocab, merges = train_bpe_reference(training * 2, 290, [])
    assert recover_merges({token: i for i, token in vocab.items()}) == (merges, True)


def test_rank_files_load_in_tiktoken(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    from tiktoken.load import load_tiktoken_bpe

    spec = trained("gpt4")
    write_tiktoken(spec, tmp_path / "a.tiktoken")
    peer = tiktoken.Encoding(
        "peer",
        pat_str=pattern_regex("gpt4"),
        mergeable_ranks=load_tiktoken_bpe(str(tmp_path / "a.tiktoken")),
        special_tokens=spec.special_tokens,
    )
    assert peer.encode(AWKWARD, allowed_special="all") == encode(spec, AWKWARD)


def rank_lines(tokens: list[bytes]) -> bytes:
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))


ALL_BYTES = [bytes([byte]) for byte in range(256)]


def test_tokens_that_no_merge_makes_stand_for_whole_words(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    tokens = [*ALL_BYTES, b"ab", b"wxyz"]
    path = tmp_path / "a.tiktoken"
    path.write_bytes(rank_lines(tokens))
    spec = read_tiktoken(path, "whitespace")
    assert spec.whole_words
    assert spec.merges == [(b"a", b"b")]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    peer = tiktoken.Encoding("p", pat_str=r"\s+|\S+", mergeable_ranks=ranks, special_tokens={})
    assert encode(spec, "wxyz ab wxyzab") == peer.encode("wxyz ab wxyzab")
    write_tiktoken(spec, path)
    assert path.read_bytes() == rank_lines(tokens)
    with pytest.raises(FormatError, match="made by no merge"):
        write_tiktoken(replace(spec, whole_words=False), path)


def test_merges_out_of_order_are_no_ranks(tmp_path: Path) -> None:
    vocab = dict(enumerate([*ALL_BYTES, b"ab", b"bc"]))
    spec = TokenizerSpec(vocab, [(b"b", b"c"), (b"a", b"b")])
    with pytest.raises(FormatError, match="not in the order of the ids"):
        write_tiktoken(spec, tmp_path / "a.tiktoken")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (b"IQ== 0\n!!! 1\n", "line 2: '!!! 1' is not a base64"),
        (b"IQ== x\n", "line 1: .* is not a base64"),
        (b"IQ==\n", "line 1: .* is not a base64"),
        (b"IQ== -1\n", "line 1: .* between"),
        (b"IQ== 0\nIQ== 1\n", r"line 2: the token b'!' comes twice"),
        (b"IQ== 0\nIg== 0\n", "line 2: the rank 0 comes twice"),
        (b"IQ== 0\n", "no token for the byte 0x00"),
    ],
)
def test_rank_file_errors_name_the_line(tmp_path: Path, lines: bytes, says: str) -> None:
    (tmp_path / "a.tiktoken").write_bytes(lines)
    with pytest.raises(FormatError, match=says):
        read_tiktoken(tmp_path / "a.tiktoken", "gpt2")


def test_a_rank_file_of_unknown_name_needs_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.tiktoken").write_bytes(rank_lines(ALL_BYTES))
    with pytest.raises(InputError, match="name the pattern"):
        load_any(tmp_path / "a.tiktoken")


# Hugging Face


@pytest.mark.parametrize("pattern", [*PATTERN_NAMES, r"\d|[a-z]+"])
def test_tokenizer_json_loads_in_tokenizers(tmp_path: Path, pattern: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = trained(pattern)
    path = tmp_path / "tokenizer.json"
    write_huggingface(spec, path)
    peer = tokenizers.Tokenizer.from_file(str(path))
    assert content_hash(read_huggingface(path)) == content_hash(spec)

    @settings(deadline=None, max_examples=60)
    @given(text=TEXTS)
    def same_ids(text: str) -> None:
        ids = encode(spec, text)
        assert peer.encode(text).ids == ids
        assert peer.decode(ids, skip_special_tokens=False) == text

    same_ids()
    assert peer.encode(AWKWARD).ids == encode(spec, AWKWARD)


def test_special_tokens_keep_their_ids_in_tokenizers(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    specials = {"<|far|>": 5000, "\n": 10, "<a>": 400}
    spec = with_special_tokens(trained(specials=[]), specials)
    write_huggingface(spec, tmp_path / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert peer.encode("<a>x\n<|far|>").ids == [400, ord("x"), 10, 5000]
    assert read_huggingface(tmp_path / "tokenizer.json") == spec


def peer_trained(tokenizers: Any, pre_tokenizer: Any) -> Any:
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = pre_tokenizer
    peer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=SPECIALS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    peer.train_from_iterator([TRAINING], trainer)
    return peer


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_what_tokenizers_wrote_is_read(tmp_path: Path, pattern: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    steps = [byte_level]
    if pattern not in ("gpt2", "none"):
        steps = [pre.Split(tokenizers.Regex(pattern_regex(pattern)), "isolated"), byte_level]
    peer = peer_trained(tokenizers, pre.Sequence(steps))
    peer.save(str(tmp_path / "tokenizer.json"))
    spec = load_any(tmp_path)
    assert spec.pattern == ("gpt4" if pattern == "llama3" else pattern)
    assert encode(spec, AWKWARD) == peer.encode(AWKWARD).ids


def hugging_face_file(**changes: Any) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    content: dict[str, Any] = {
        "normalizer": None,
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
        ({"normalizer": {"type": "NFC"}}, "has a normalizer"),
        ({"pre_tokenizer": {"add_prefix_space": True}}, "add_prefix_space"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, r"pre-tokenizer \['Metaspace'\]"),
        ({"pre_tokenizer": split_by({"Regex": "a+"}, "Removed")}, "behavior 'Removed'"),
        ({"pre_tokenizer": split_by({"Regex": "a("})}, "position 2"),
        ({"pre_tokenizer": split_by({"Other": "a"})}, "Split pattern"),
        ({"model": {"type": "WordPiece"}}, "'WordPiece'"),
        ({"model": {"vocab": None}}, "lacks its vocab"),
        ({"model": {"merges": [["a", "c"]]}}, "merge 1: 'ac' is not in the vocabulary"),
        ({"model": {"merges": [3]}}, "merge 1: a merge needs two"),
        ({"model": {"dropout": 0.1}}, "dropout = 0.1"),
        ({"model": {"byte_fallback": True}}, "byte_fallback"),
        ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
        ({"added_tokens": [{"id": 300, "content": "<m>", "lstrip": True}]}, "'<m>': .* lstrip"),
        ({"added_tokens": [{"id": 65, "content": "<m>"}]}, "65 of '<m>' already belongs"),
        ({"added_tokens": [{"id": 65, "content": ""}]}, "content ''"),
        ({"added_tokens": ["x"]}, "content None"),
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


# trafo's folder


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    specials=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True),
    pattern=st.sampled_from([*PATTERN_NAMES, r"\d+"]),
    whole_words=st.booleans(),
)
def test_folder_round_trip(
    tmp_path: Path, specials: list[str], pattern: str, whole_words: bool
) -> None:
    vocab, merges = train_bpe_reference(TRAINING, 300 + len(specials), specials, "gpt2")
    spec = with_special_tokens(TokenizerSpec(vocab, merges), specials)
    spec = replace(spec, pattern=pattern, whole_words=whole_words)
    save_folder(spec, tmp_path / "new" / "tok", {"seconds": 1.5})
    assert load_folder(tmp_path / "new" / "tok") == spec
    assert load_any(tmp_path / "new" / "tok") == spec
    assert load_training_facts(tmp_path / "new" / "tok") == {"seconds": 1.5}


def test_a_special_token_spelt_like_a_byte(tmp_path: Path) -> None:
    spec = trained(specials=["a"])
    assert spec.special_tokens == {"a": max(spec.vocab)}
    save_folder(trained(), tmp_path)
    save_folder(spec, tmp_path)
    assert load_folder(tmp_path) == spec
    assert not (tmp_path / "tokenizer.json").exists()  # where it would become id 97


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "trafo.json"])
def test_changed_files_are_noticed(tmp_path: Path, name: str) -> None:
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
        ({"pattern": None}, "'pattern' is missing"),
        ({"special_tokens": {"<s>": "x"}}, "not a whole number"),
    ],
)
def test_other_versions_of_trafo_json(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    save_folder(trained(), tmp_path)
    about = json.loads((tmp_path / "trafo.json").read_text(encoding="utf-8"))
    (tmp_path / "trafo.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(FormatError, match=says):
        load_folder(tmp_path)


# The hash


def test_hash_is_the_same_however_it_was_loaded(tmp_path: Path) -> None:
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
        assert content_hash(loaded) == content_hash(spec)
    assert content_hash(replace(spec, pattern=pattern_regex("gpt4"))) == content_hash(spec)


def test_hash_differs_with_every_part() -> None:
    spec = trained()
    others = [
        spec,
        replace(spec, pattern="gpt4"),
        replace(spec, whole_words=True),
        replace(spec, merges=spec.merges[:-1]),
        replace(spec, merges=spec.merges[::-1]),
        replace(spec, special_tokens={}),
        replace(spec, vocab={**spec.vocab, 1000: b"x"}),
    ]
    assert len({content_hash(other) for other in others}) == len(others)


# Any format


def test_detection_and_its_errors(tmp_path: Path) -> None:
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


def test_special_tokens_must_be_a_list_of_texts() -> None:
    for wrong, says in [("<s>", "come as a list"), ([""], "empty"), ({"<s>": -1}, "between")]:
        with pytest.raises(TrafoError, match=says):
            with_special_tokens(trained(), wrong)  # type: ignore[arg-type]


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrafoError):
        save_folder(trained(), tmp_path / "file" / "tok")


# Real files


def gpt2_cases() -> list[tuple[str, list[int]]]:
    """Texts, and the ids that tiktoken gives for them."""
    return [(case["text"], case["ids"]) for case in json.loads((GPT2 / "ids.json").read_text())]


def test_texts_get_the_ids_of_gpt2() -> None:
    spec = load_any(GPT2)
    ours = Tokenizer.from_spec(spec)
    for text, ids in gpt2_cases():
        assert ours.encode(text) == ids
        assert ours.decode(ids) == text
        assert encode(spec, text) == ids  # by the reference


@pytest.mark.skipif(not (DATA / "gpt2").exists(), reason="needs shared/data")
def test_the_small_files_have_every_merge_that_their_texts_could_use() -> None:
    """So that equal ids are no accident."""
    whole, small = load_any(DATA / "gpt2"), load_any(GPT2)
    texts = [part for text, _ in gpt2_cases() for part in text.split("<|endoftext|>")]
    words = {word.encode() for text in texts for word in split_words(text)}
    usable = [pair for pair in whole.merges if any(b"".join(pair) in word for word in words)]
    assert small.merges == usable
    assert small.vocab.items() <= whole.vocab.items()
    ours = Tokenizer.from_spec(whole)
    assert [ours.encode(text) for text, _ in gpt2_cases()] == [ids for _, ids in gpt2_cases()]


@pytest.mark.skipif(not (DATA / "gpt2").exists(), reason="needs shared/data")
def test_gpt2s_own_files_give_tiktokens_ids(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    shutil.copytree(DATA / "gpt2", tmp_path / "gpt2")
    spec = load_any(tmp_path / "gpt2")
    assert (len(spec.vocab), len(spec.merges)) == (50257, 50000)
    peer = tiktoken.Encoding(
        "peer",
        pat_str=pattern_regex("gpt2"),
        mergeable_ranks=spec.ordinary_tokens(),
        special_tokens=spec.special_tokens,
    )
    assert encode(spec, AWKWARD) == peer.encode(AWKWARD, allowed_special={"<|endoftext|>"})
    assert recover_merges(spec.ordinary_tokens()) == (spec.merges, True)


@pytest.mark.skipif(not (DATA / "cl100k").exists(), reason="needs shared/data")
def test_cl100k_gives_tiktokens_ids_in_both_spellings_of_its_pattern() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    spec = load_any(DATA / "cl100k" / "cl100k_base.tiktoken")
    assert spec.pattern == "gpt4"
    assert not spec.whole_words
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
    for text in [AWKWARD, *endings]:
        assert encode(spec, text) == peer.encode(text, allowed_special="all")
