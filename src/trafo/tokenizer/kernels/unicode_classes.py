"""The class of every Unicode character, as far as the split patterns need it.

The classes are those of Unicode 16.0, which tiktoken 0.14 and `tokenizers` 0.23 follow. They are
shipped, so that a text gives the same ids on every machine, whatever version the `regex` package
or Python there know. (`tests/tokenizer/kernels/test_unicode_classes.py` asks tiktoken for them,
and writes the data file if it is run as a program.)
"""

from functools import cache
from pathlib import Path

import numpy as np

from trafo.tokenizer.kernels.arrays import Bytes, Int64s

UNICODE_VERSION = "16.0"

# In this order, so that "is a letter" is one comparison: UPPER <= c <= LETTER.
OTHER, UPPER, LOWER, LETTER, MARK, NUMBER, SPACE, NEWLINE = range(8)
UNASSIGNED = 8  # only in the data file; OTHER to the patterns

NUM_CODE_POINTS = 0x110000
DATA = Path(__file__).with_name("unicode_classes.npy")


@cache
def character_classes() -> Bytes:
    """The class of each code point, as a table of 1,114,112 bytes, for reading only.

    It is not marked as such: to numba that is another type, and kernels that get it as an address
    (`workspace.py`) cannot know, so that the scanner would be compiled once for each.
    """
    starts, classes = np.load(DATA)
    lengths = np.diff(starts, append=NUM_CODE_POINTS)
    table: Bytes = np.repeat(np.where(classes == UNASSIGNED, OTHER, classes), lengths)
    return table.astype(np.uint8)


def unassigned_ranges() -> Int64s:
    """The first and one after the last code point of each range that has no characters."""
    starts, classes = np.load(DATA).astype(np.int64)
    ends = np.append(starts[1:], NUM_CODE_POINTS)
    return np.stack([starts, ends], axis=1)[classes == UNASSIGNED]
