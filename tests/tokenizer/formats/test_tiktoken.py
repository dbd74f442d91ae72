"""Rank files, against tiktoken."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trafo.errors import FormatError, InputError
from trafo.tokenizer.formats.load import load_any
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.formats.tiktoken import derive_merges, read_tiktoken, write_tiktoken
from trafo.tokenizer.patterns import pattern_regex
from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

LLAMA3 = (  # as Llama 3's own tokenizer.py spells it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
Trained = Callable[..., TokenizerSpec]
Encode = Callable[[TokenizerSpec, str], list[int]]


def test_tiktoken_round_trip(tmp_path: Path, trained: Trained) -> None:
    spec = trained("gpt4")
    write_tiktoken(spec, tmp_path / "a.tiktoken")
    assert read_tiktoken(tmp_path / "a.tiktoken", "gpt4", spec.special_tokens) == spec


def test_derive_merges_are_the_trained_ones(texts: SearchStrategy[str]) -> None:
    @settings(deadline=None, max_examples=50)
    @given(training=texts)
    def recovered(training: str) -> None:
        vocab, merges = train_bpe_reference(training * 2, 290, [])
        assert derive_merges({token: i for i, token in vocab.items()}) == (merges, True)

    recovered()


def test_rank_files_load_in_tiktoken(
    tmp_path: Path, awkward: str, trained: Trained, encode: Encode
) -> None:
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
    assert peer.encode(awkward, allowed_special="all") == encode(spec, awkward)


def rank_lines(tokens: list[bytes]) -> bytes:
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))


ALL_BYTES = [bytes([byte]) for byte in range(256)]


def test_tokens_that_no_merge_makes_stand_for_whole_words(tmp_path: Path, encode: Encode) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    tokens = [*ALL_BYTES, b"ab", b"wxyz"]
    path = tmp_path / "a.tiktoken"
    path.write_bytes(rank_lines(tokens))
    spec = read_tiktoken(path, "whitespace")
    assert spec.ignore_merges
    assert spec.merges == [(b"a", b"b")]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    peer = tiktoken.Encoding("p", pat_str=r"\s+|\S+", mergeable_ranks=ranks, special_tokens={})
    assert encode(spec, "wxyz ab wxyzab") == peer.encode("wxyz ab wxyzab")
    write_tiktoken(spec, path)
    assert path.read_bytes() == rank_lines(tokens)
    with pytest.raises(FormatError, match="made by no merge"):
        write_tiktoken(replace(spec, ignore_merges=False), path)


RANK_FILES = st.lists(
    st.text(alphabet="abc", min_size=2, max_size=6).map(str.encode), unique=True, max_size=25
).flatmap(lambda tokens: st.permutations([*tokens, *ALL_BYTES]))


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    tokens=RANK_FILES,
    texts=st.lists(st.text(alphabet="aabbbccc ", max_size=40), min_size=1),
)
@example(tokens=[*ALL_BYTES, b"abc", b"bc"], texts=["abc xabc", "bcabcbcabc"])
def test_any_ranks_give_tiktokens_ids(
    tmp_path: Path, tokens: list[bytes], texts: list[str], encode: Encode
) -> None:
    """Also where a token is made of parts of a higher rank than its own, as in the example."""
    tiktoken = pytest.importorskip("tiktoken")
    path = tmp_path / "a.tiktoken"
    path.write_bytes(rank_lines(tokens))
    ranks = {token: rank for rank, token in enumerate(tokens)}
    peer = tiktoken.Encoding("p", pat_str=r"\s+|\S+", mergeable_ranks=ranks, special_tokens={})
    ours = Tokenizer.load(path, pattern="whitespace")
    for text in [*texts, "".join(texts) * 20]:  # the last one has words of hundreds of bytes
        assert ours.encode(text) == peer.encode_ordinary(text)
        assert encode(ours.spec, text) == peer.encode_ordinary(text)


def test_a_rank_file_with_the_pattern_of_llama_3(
    tmp_path: Path, trained: Trained, awkward: str
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    spec = trained("gpt4", specials=[])
    write_tiktoken(spec, tmp_path / "tokenizer.model")
    specials = {"<|begin_of_text|>": 400}
    ours = Tokenizer.load(tmp_path / "tokenizer.model", specials, pattern="llama3")
    ranks = spec.ordinary_tokens()
    peer = tiktoken.Encoding(
        "llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=specials
    )
    text = f"<|begin_of_text|>{awkward}"
    assert ours.encode(text) == peer.encode(text, allowed_special="all")


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
        (b"IQ== 0\nIQ== 1\n", r"line 2: the token b'!' is given twice"),
        (b"IQ== 0\nIg== 0\n", "line 2: the rank 0 is given twice"),
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
