"""Text -> the stream of ends: where each word and each special token ends.

An end is a byte offset in the low 40 bits. The bits above are 0 for a word, and one more than the
index of a special token that ends there. A word begins where the one before ended, so this one
array says everything: counting and encoding are a single loop over it.

The scanner takes turns between the two kinds of spans. Special tokens come as a list that
`find_specials` made before: it looks at 64 bytes at a time for a byte that begins a token, and only
there compares, byte by byte, narrowing a sorted list of tokens like a finger in a dictionary. The
text between two of them is split by the pattern, into `ends`, until that array is nearly full. The
caller uses those ends and calls again from where the scan got.
"""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Int64s, Specials
from trafo.tokenizer.kernels.bits import range_mask, trailing_zeros
from trafo.tokenizer.kernels.scan_gpt2 import ROOM, scan_gpt2
from trafo.tokenizer.kernels.scan_others import scan_others

SPECIAL_SHIFT = 40
OFFSET_MASK = (1 << SPECIAL_SHIFT) - 1


@subkernel
def _pass_special(
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
        count, start, next_special = _pass_special(specials, next_special, start, ends, count)
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
        count, start, next_special = _pass_special(specials, next_special, start, ends, count)
    return count, start, next_special


_WIDTH = 64


@subkernel
def _start(ends: Int64s, token: int) -> int:
    return ends[token - 1] if token > 0 else 0


@subkernel
def _lower_bound(text: Bytes, ends: Int64s, depth: int, least: int, first: int, last: int) -> int:
    """Find the first of first..last-1 whose byte at `depth` is `least` or more, or `last`."""
    while first < last:
        middle = (first + last) // 2
        if text[_start(ends, middle) + depth] < least:
            first = middle + 1
        else:
            last = middle
    return first


@subkernel
def _match(data: Bytes, index: int, stop: int, text: Bytes, ends: Int64s) -> int:
    """Find the longest token at index, of tokens in the order of their bytes, or -1.

    Byte by byte, the tokens that begin like the text become fewer; they stand side by side.
    """
    longest = -1
    first, last, depth = 0, ends.size, 0
    while first < last:
        if _start(ends, first) + depth == ends[first]:  # it ends here; it is the shortest of them
            longest = first
            first += 1
            continue
        if index + depth >= stop:
            break
        byte = np.int64(data[index + depth])
        first = _lower_bound(text, ends, depth, byte, first, last)
        last = _lower_bound(text, ends, depth, byte + 1, first, last)
        depth += 1
    return longest


@subkernel
def _candidate_mask(data: Bytes, index: int, stop: int, first_bytes: Bytes) -> np.uint64:
    """Bit i is set where data[index + i] is the first byte of a token, for up to 64 bytes."""
    mask = np.uint64(0)
    if index + _WIDTH <= data.size:
        for byte in first_bytes:
            mask |= range_mask(data, index, byte, byte)
        if stop - index < _WIDTH:
            mask &= (np.uint64(1) << np.uint64(stop - index)) - np.uint64(1)
        return mask
    for i in range(stop - index):
        for byte in first_bytes:
            if data[index + i] == byte:
                mask |= np.uint64(1) << np.uint64(i)
    return mask


@kernel
def find_specials(
    data: Bytes,
    start: int,
    stop: int,
    first_bytes: Bytes,
    text: Bytes,
    ends: Int64s,
    order: Int64s,
    found: Specials,
    count: int,
) -> tuple[int, int]:
    """Write tokens to found[count:], and return their number and how far the search got."""
    position = start
    while position < stop:
        mask = _candidate_mask(data, position, min(stop, position + _WIDTH), first_bytes)
        next_position = position + _WIDTH
        while mask:
            index = position + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
            token = _match(data, index, stop, text, ends)
            if token < 0:
                continue
            if count == found.shape[0]:
                return count, index
            length = ends[token] - _start(ends, token)
            found[count, 0] = index
            found[count, 1] = index + length
            found[count, 2] = order[token]
            count += 1
            next_position = index + length
            break
        position = next_position
    return count, stop
