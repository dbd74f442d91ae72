"""The shipped table of character classes against the installed `regex` package."""

import unicodedata

import numba
import numpy as np

from trafo.tokenizer.kernels import unicode_classes
from trafo.tokenizer.kernels.unicode_classes import (
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    OTHER,
    SPACE,
    UPPER,
    character_classes,
    classes_from_regex,
)


def test_the_shipped_table_is_that_of_the_regex_package() -> None:
    different = np.flatnonzero(character_classes() != classes_from_regex())
    assert [hex(code) for code in different] == []


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
    for code, character in enumerate(map(chr, range(0x110000))):
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
    assert character_classes().shape == (0x110000,)
