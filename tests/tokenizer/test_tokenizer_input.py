"""What is given to a tokenizer in the wrong shape: it works, or is refused in words."""

from typing import Any

import numpy as np
import pytest

from trafo.errors import InputError
from trafo.tokenizer.tokenizer import Tokenizer

TOKENIZER = Tokenizer({i: bytes([i]) for i in range(256)}, [])


def test_one_string_is_not_a_list_of_its_letters() -> None:
    with pytest.raises(InputError, match=r"texts must be a list; write \['abc'\]"):
        TOKENIZER.encode_batch("abc")
    with pytest.raises(InputError, match="special tokens must be a list"):
        Tokenizer({}, [], "<s>")
    assert TOKENIZER.encode_batch(("ab", "c")) == [[97, 98], [99]]


@pytest.mark.parametrize("wrong", [b"abc", None, 3, ["abc"]])
def test_what_is_not_a_text_is_refused_in_words(wrong: Any) -> None:
    for encode in (TOKENIZER.encode, TOKENIZER.encode_array):
        with pytest.raises(InputError, match=f"a text is needed, not {type(wrong).__name__}"):
            encode(wrong)


def test_arrays_and_tensors_are_decoded_like_lists() -> None:
    torch = pytest.importorskip("torch")
    text = "She'll sell 日本語"
    ids = list(text.encode())
    for given in (ids, tuple(ids), np.array(ids), np.array(ids, np.uint16), torch.tensor(ids)):
        assert TOKENIZER.decode(given) == text
        assert "".join(TOKENIZER.decode_stream(given)) == text
    assert TOKENIZER.decode(torch.tensor([], dtype=torch.long)) == ""


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([-1], r"-1 is not an id of this tokenizer; its ids are whole numbers from 0 to"),
        (np.array([5, -7]), "-7 is not an id"),
        ([10**30], "is not an id"),
        ([0.5], "0.5 is not an id"),
        ("ab", "'a' is not an id"),
        ([[1, 2]], "list is not a flat list of ids; decode the rows of a batch one by one"),
        (np.zeros((2, 3), int), "ndarray is not a flat list"),
        (np.array(5), "ndarray is not a flat list"),
        (None, "NoneType is not a flat list"),
    ],
)
def test_what_are_not_ids_is_refused_in_words(ids: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        TOKENIZER.decode(ids)
