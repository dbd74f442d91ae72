"""A stretch of text with special tokens in it -> the stream of ends.

An end in the stream is a byte offset; the bits above it say which special token ends there, if
any. A word begins where the one before ended.
"""

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.kernels.compile import kernel, part
from trafo.tokenizer.kernels.scan_gpt2 import ROOM, Ends, scan_gpt2
from trafo.tokenizer.kernels.scan_others import scan_others
from trafo.tokenizer.kernels.utf8 import Bytes

# (number of cuts, 3): start, stop, index of the special token that stands there. The end of a
# document, which no word crosses either, is an empty stretch with an index of its own.
Cuts = NDArray[np.int64]

SPECIAL_SHIFT = 40
OFFSET_MASK = (1 << SPECIAL_SHIFT) - 1


@part
def _take_cut(
    cuts: Cuts, next_cut: int, start: int, ends: Ends, count: int
) -> tuple[int, int, int]:
    """If a special token stands here, put it into the stream and step behind it."""
    if next_cut < cuts.shape[0] and start == cuts[next_cut, 0]:
        start = cuts[next_cut, 1]
        ends[count] = (cuts[next_cut, 2] + 1) << SPECIAL_SHIFT | start
        count += 1
        next_cut += 1
    return count, start, next_cut


@kernel
def scan_words(
    pattern: int,
    data: Bytes,
    classes: Bytes,
    start: int,
    stop: int,
    cuts: Cuts,
    next_cut: int,
    ends: Ends,
) -> tuple[int, int, int]:
    """Fill `ends` with the words and special tokens of data[start:stop].

    Returns how many there are, where the scan stands, and the next cut; call again from there
    until it stands at `stop`.
    """
    count = np.int64(0)
    while (start < stop or next_cut < cuts.shape[0]) and count + ROOM <= ends.size:
        segment_stop = cuts[next_cut, 0] if next_cut < cuts.shape[0] else stop
        if start < segment_stop:
            count, start = scan_others(pattern, data, classes, start, segment_stop, ends, count)
        count, start, next_cut = _take_cut(cuts, next_cut, start, ends, count)
    return count, start, next_cut


@kernel
def scan_words_gpt2(
    data: Bytes, classes: Bytes, start: int, stop: int, cuts: Cuts, next_cut: int, ends: Ends
) -> tuple[int, int, int]:
    """`scan_words` for GPT-2's pattern, apart so that only what is used gets compiled."""
    count = np.int64(0)
    while (start < stop or next_cut < cuts.shape[0]) and count + ROOM <= ends.size:
        segment_stop = cuts[next_cut, 0] if next_cut < cuts.shape[0] else stop
        if start < segment_stop:
            count, start = scan_gpt2(data, classes, start, segment_stop, ends, count)
        count, start, next_cut = _take_cut(cuts, next_cut, start, ends, count)
    return count, start, next_cut
