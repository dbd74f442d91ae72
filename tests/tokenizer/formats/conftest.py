"""A trained tokenizer, its ids by the reference, and texts that are hard to split."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trafo.tokenizer.formats.spec import TokenizerSpec, with_special_tokens
from trafo.tokenizer.reference import encode_reference, train_bpe_reference

SPECIALS = ("<|endoftext|>", "<|début fin|>")


@pytest.fixture(scope="session")
def training() -> str:
    return "She'll sell 1234 sea-shells, y'all!\n\n  Größe über 12 日本語 — don't.\t\r\n" * 3


@pytest.fixture(scope="session")
def awkward() -> str:
    return (
        "She'LL sell\u00a0 99999 \n \n  x  '\u017f ǅungla éa\u0301 日本語日"
        " <|endoftext|>ok<|début fin|> \n  "
    )


@pytest.fixture(scope="session")
def texts() -> SearchStrategy[str]:
    alphabet = "Shelsa '1239\n\r\t éöß日本\u0301😀-!/<|endoftext|>\u00a0\u2028"
    return st.text(alphabet=alphabet, max_size=50)


@pytest.fixture(scope="session")
def trained(training: str) -> Callable[..., TokenizerSpec]:
    """A tokenizer of 320 tokens, trained by the reference."""

    def train(pattern: str = "gpt2", specials: Sequence[str] = SPECIALS) -> TokenizerSpec:
        vocab, merges = train_bpe_reference(training, 320, list(specials), pattern)
        return with_special_tokens(TokenizerSpec(vocab, merges, pattern=pattern), list(specials))

    return train


@pytest.fixture(scope="session")
def encode() -> Callable[[TokenizerSpec, str], list[int]]:
    """A text's ids, by the reference."""

    def ids(spec: TokenizerSpec, text: str) -> list[int]:
        specials = list(spec.special_tokens)
        whole = spec.ignore_merges
        return encode_reference(text, spec.vocab, spec.merges, specials, spec.pattern, whole)

    return ids
