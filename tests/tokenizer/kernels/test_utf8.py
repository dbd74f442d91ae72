"""Where a text stops being UTF-8, against Python's decoder."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.tokenizer.kernels.utf8 import first_invalid

# Bytes that decide something: borders of lead bytes, of second bytes, and plain ASCII.
BORDERS = bytes(
    [
        *[0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF],
        *[0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF],
    ]
)
PIECES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(BORDERS).map(lambda byte: bytes([byte])),
    st.text(max_size=8).map(str.encode),
    st.sampled_from([b"a" * 63, b"a" * 64, "é".encode() * 32, "中".encode() * 22]),
)


def where(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


@settings(deadline=None, max_examples=250)
@given(data=st.lists(PIECES, max_size=12).map(b"".join))
@example(data=b"\xed\xa0\x80")
@example(data=b"\xf4\x90\x80\x80")
@example(data=b"a" * 64 + b"\xff")
def test_the_place_is_that_of_pythons_decoder(data: bytes) -> None:
    assert first_invalid(np.frombuffer(data, np.uint8)) == where(data)


def test_every_sequence_of_borders() -> None:
    for size in range(1, 4):
        for sequence in product(BORDERS, repeat=size):
            data = bytes(sequence)
            found = first_invalid(np.frombuffer(data, np.uint8))
            assert found == where(data), data.hex()


@pytest.mark.parametrize("lead", range(0xF0, 0xF6))
def test_every_sequence_of_four_border_bytes(lead: int) -> None:
    for rest in product(BORDERS[2:13], repeat=3):
        data = bytes([lead, *rest])
        found = first_invalid(np.frombuffer(data, np.uint8))
        assert found == where(data), data.hex()


@settings(deadline=None)
@given(before=st.text(max_size=80), data=st.binary(max_size=80), after=st.binary(max_size=80))
def test_only_the_slice_is_looked_at(before: str, data: bytes, after: bytes) -> None:
    start = len(before.encode())
    text = np.frombuffer(before.encode() + data + after, np.uint8)
    assert first_invalid(text[start : start + len(data)]) == where(data)


def test_every_character_is_valid() -> None:
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)
    data = np.frombuffer(text.encode(), np.uint8)
    assert first_invalid(data) == -1
