"""The shipped table of character classes against tiktoken, and against Python's own tables."""

import unicodedata

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from trafo.tokenizer.kernels import unicode_classes
from trafo.tokenizer.kernels.unicode_classes import (
    DATA,
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUM_CODE_POINTS,
    NUMBER,
    OTHER,
    SPACE,
    UNASSIGNED,
    UPPER,
    character_classes,
    unassigned_ranges,
)

REGEXES = {
    UPPER: r"[\p{Lu}\p{Lt}]",
    LOWER: r"\p{Ll}",
    LETTER: r"[\p{Lm}\p{Lo}]",
    MARK: r"\p{M}",
    NUMBER: r"\p{N}",
    SPACE: r"\s",
    NEWLINE: r"[\r\n]",
    UNASSIGNED: r"\p{Cn}",
}


def classes_of_tiktoken() -> NDArray[np.uint8]:
    """The class of each code point: tiktoken leaves out what its pattern does not match."""
    tiktoken = pytest.importorskip("tiktoken")
    bytes_only = {bytes([byte]): byte for byte in range(256)}
    everything = "".join(chr(i) for i in range(NUM_CODE_POINTS) if not 0xD800 <= i <= 0xDFFF)
    table = np.full(NUM_CODE_POINTS, OTHER, np.uint8)
    for cls, pattern in REGEXES.items():
        peer = tiktoken.Encoding(
            "peer", pat_str=f"(?:{pattern})+", mergeable_ranks=bytes_only, special_tokens={}
        )
        matched = bytes(peer.encode_ordinary(everything)).decode()
        table[np.frombuffer(matched.encode("utf-32-le"), np.uint32)] = cls
    return table


def test_the_shipped_table_is_that_of_tiktoken() -> None:
    theirs = classes_of_tiktoken()
    known = np.where(theirs == UNASSIGNED, OTHER, theirs)
    assert [hex(code) for code in np.flatnonzero(character_classes() != known)] == []
    unassigned = np.zeros(NUM_CODE_POINTS, np.bool_)
    for start, stop in unassigned_ranges():
        unassigned[start:stop] = True
    assert [hex(code) for code in np.flatnonzero(unassigned != (theirs == UNASSIGNED))] == []


def test_it_is_unicode_16() -> None:
    """Its 154,998 characters are as many as https://www.unicode.org/versions/Unicode16.0.0 says."""
    num_unassigned = int(np.diff(unassigned_ranges()).sum())
    controls, surrogates, private_use = 65, 2048, 137_468
    others = controls + surrogates + private_use
    assert NUM_CODE_POINTS - num_unassigned - others == 154_998


def test_the_table_is_that_of_the_unicode_categories() -> None:
    """Against Python's own tables, which are of another version of Unicode."""
    class_of_category = {
        **{"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lm": LETTER, "Lo": LETTER},
        **{"Mn": MARK, "Mc": MARK, "Me": MARK, "Nd": NUMBER, "Nl": NUMBER, "No": NUMBER},
        **{"Zs": SPACE, "Zl": SPACE, "Zp": SPACE},
    }
    controls = {**dict.fromkeys("\t\x0b\x0c\x85", SPACE), "\r": NEWLINE, "\n": NEWLINE}
    table = character_classes()
    different = []
    for code, character in enumerate(map(chr, range(NUM_CODE_POINTS))):
        category = unicodedata.category(character)
        if category == "Cn":  # assigned later, perhaps
            continue
        expected = controls.get(character, class_of_category.get(category, OTHER))
        if table[code] != expected:
            different.append(code)
    # A version of Unicode changes the category of a handful of characters, rare ones.
    assert len(different) < 20
    assert all(code > 0xFF for code in different)


def test_the_table_is_shared_and_of_one_type_for_all_kernels() -> None:
    assert character_classes() is unicode_classes.character_classes()
    assert numba.typeof(character_classes()).mutable  # as the kernels' own views of memory are
    assert character_classes().shape == (NUM_CODE_POINTS,)


def write_data() -> None:
    table = classes_of_tiktoken()
    starts = np.flatnonzero(np.diff(table, prepend=table[0] + 1))
    np.save(DATA, np.stack([starts, table[starts]]).astype(np.int32))


if __name__ == "__main__":
    write_data()
