"""The first texts, encoded in plain Python, get the ids that the kernels give."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import FormatError, InputError
from trafo.tokenizer.pure_python import PurePythonEncoder
from trafo.tokenizer.reference import train_bpe_reference
from trafo.tokenizer.tokenizer import Tokenizer

TRAINING = "She'll sell 12 sea-shells, y'all!\n\n  Größe über 日本語 — don't. aaaa\t\r\n" * 3
SPECIALS = ["<|e|>", "<|e|><|e|>"]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([*SPECIALS, *TRAINING.split(" ")]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    ),
    max_size=15,
).map("".join)


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4o", r"\s+|\S+"])
@pytest.mark.parametrize("ignore_merges", [False, True])
def test_both_ways_give_the_same_ids(pattern: str, ignore_merges: bool) -> None:
    vocab, merges = train_bpe_reference(TRAINING, 320, SPECIALS, pattern)
    unreachable = {**vocab, 400: b"zzz"}
    tokenizer = Tokenizer(
        unreachable, merges, SPECIALS, pattern=pattern, ignore_merges=ignore_merges
    )
    tokenizer.prepare()

    @settings(max_examples=40)
    @given(text=TEXTS)
    def same_ids(text: str) -> None:
        first = PurePythonEncoder(tokenizer.spec)
        for special in ("allow", "ignore"):
            for each in (text, text + " zzz", text + "zzz"):
                assert first.encode(each, special) == tokenizer.encode(each, special)

    same_ids()


def test_only_short_texts_and_not_many_are_encoded_so() -> None:
    first = PurePythonEncoder(Tokenizer({i: bytes([i]) for i in range(256)}, []).spec)
    assert first.encode("a" * 1001, "allow") is None
    assert sum(first.encode("a" * 1000, "allow") is not None for _ in range(50)) == 10
    gaps = PurePythonEncoder(Tokenizer({0: b"a"}, []).spec)  # the kernels say which byte is missing
    assert gaps.encode("b", "allow") is None


def test_what_is_wrong_is_refused_before_any_kernel_is_there() -> None:
    with pytest.raises(FormatError, match="the vocabulary lacks b'ab'"):
        Tokenizer({0: b"a", 1: b"b"}, [(b"a", b"b")])
    with pytest.raises(InputError, match="not a regular expression"):
        Tokenizer({}, [], pattern="(")
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
    with pytest.raises(InputError, match="contains the special token '<s>'"):
        ours.encode("a<s>", special="refuse")
    with pytest.raises(InputError, match="special='no' is not known"):
        ours.encode("a", special="no")  # type: ignore[arg-type]


def test_a_first_sentence_needs_no_numba() -> None:
    program = """
import sys
from trafo.tokenizer import Tokenizer
ours = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"])
assert ours.decode(ours.encode("Größe <s>")) == "Größe <s>"
sys.exit("numba" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
