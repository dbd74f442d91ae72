"""The class of every Unicode character, as far as the split patterns ask for it.

The classes are read off the `regex` package once (running this module rewrites the data file
beside it) and shipped, so that a text gives the same ids on every machine, whatever version of
that package is installed there.
"""

from functools import cache
from pathlib import Path

import numpy as np

from trafo.tokenizer.kernels.arrays import Bytes

# In this order, so that "is a letter" is one comparison: UPPER <= c <= LETTER.
OTHER, UPPER, LOWER, LETTER, MARK, NUMBER, SPACE, NEWLINE = range(8)

_NUM_CHARACTERS = 0x110000
_DATA = Path(__file__).with_name("unicode_classes.npy")
_REGEXES = {
    UPPER: r"[\p{Lu}\p{Lt}]",
    LOWER: r"\p{Ll}",
    LETTER: r"[\p{Lm}\p{Lo}]",
    MARK: r"\p{M}",
    NUMBER: r"\p{N}",
    SPACE: r"\s",
    NEWLINE: r"[\r\n]",
}


@cache
def character_classes() -> Bytes:
    """The class of each code point, as a table of 1,114,112 bytes, for reading only.

    It is not marked as such: to numba that is another type, and kernels that get it as an address
    (`workspace.py`) cannot know, so that the scanner would be compiled once for each.
    """
    starts, classes = np.load(_DATA)
    lengths = np.diff(starts, append=_NUM_CHARACTERS)
    table: Bytes = np.repeat(classes.astype(np.uint8), lengths)
    return table


def classes_from_regex() -> Bytes:
    """The same table, asked of the installed `regex` package."""
    import regex

    table = np.zeros(_NUM_CHARACTERS, np.uint8)
    everything = "".join(map(chr, range(_NUM_CHARACTERS)))
    for cls, pattern in _REGEXES.items():
        for run in regex.finditer(f"(?:{pattern})+", everything):
            table[run.start() : run.end()] = cls
    return table


def _write_data() -> None:
    table = classes_from_regex()
    starts = np.flatnonzero(np.diff(table, prepend=table[0] + 1))
    np.save(_DATA, np.stack([starts, table[starts]]).astype(np.int32))


if __name__ == "__main__":
    _write_data()
