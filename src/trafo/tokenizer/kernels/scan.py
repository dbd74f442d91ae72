"""Text and the special tokens in it -> the stream of ends.

An end in the stream is a byte offset; the bits above it say which special token ends there, if
any. A word begins where the one before ended.
"""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Specials
from trafo.tokenizer.kernels.scan_gpt2 import ROOM, scan_gpt2
from trafo.tokenizer.kernels.scan_others import scan_others

SPECIAL_SHIFT = 40
OFFSET_MASK = (1 << SPECIAL_SHIFT) - 1


@subkernel
def _take_special(
    specials: Specials, next_special: int, start: int, ends: Ends, count: int
) -> tuple[int, int, int]:
    """If there is a special token here, put it into the stream and step over it."""
    if next_special < specials.shape[0] and start == specials[next_special, 0]:
        start = specials[next_special, 1]
        ends[count] = (specials[next_special, 2] + 1) << SPECIAL_SHIFT | start
        count += 1
        next_special += 1
    return count, start, next_special


@kernel
def scan_words(
    pattern: int,
    data: Bytes,
    classes: Bytes,
    start: int,
    stop: int,
    specials: Specials,
    next_special: int,
    ends: Ends,
) -> tuple[int, int, int]:
    """Fill `ends` with the words and special tokens of data[start:stop].

    Returns how many there are, how far the scan got, and the next special token; call again from
    there until it is at `stop`.
    """
    count = np.int64(0)
    while (start < stop or next_special < specials.shape[0]) and count + ROOM <= ends.size:
        words_stop = specials[next_special, 0] if next_special < specials.shape[0] else stop
        if start < words_stop:
            count, start = scan_others(pattern, data, classes, start, words_stop, ends, count)
        count, start, next_special = _take_special(specials, next_special, start, ends, count)
    return count, start, next_special


@kernel
def scan_words_gpt2(
    data: Bytes,
    classes: Bytes,
    start: int,
    stop: int,
    specials: Specials,
    next_special: int,
    ends: Ends,
) -> tuple[int, int, int]:
    """`scan_words` for GPT-2's pattern, apart so that only what is used gets compiled."""
    count = np.int64(0)
    while (start < stop or next_special < specials.shape[0]) and count + ROOM <= ends.size:
        words_stop = specials[next_special, 0] if next_special < specials.shape[0] else stop
        if start < words_stop:
            count, start = scan_gpt2(data, classes, start, words_stop, ends, count)
        count, start, next_special = _take_special(specials, next_special, start, ends, count)
    return count, start, next_special
