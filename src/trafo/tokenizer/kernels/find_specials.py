"""Special tokens in a text: 64 bytes at a time for their first bytes, then byte by byte."""

import numpy as np

from trafo.tokenizer.kernels.arrays import Bytes, Int64s, Specials
from trafo.tokenizer.kernels.bits import range_mask, trailing_zeros
from trafo.tokenizer.kernels.compile import kernel, subkernel

_WIDTH = 64


@subkernel
def _match(data: Bytes, index: int, stop: int, text: Bytes, ends: Int64s) -> int:
    """Which token, in the order given, is at index; -1 if none."""
    start = 0
    for token in range(ends.size):
        length = ends[token] - start
        if index + length <= stop:
            same = True
            for i in range(length):
                if data[index + i] != text[start + i]:
                    same = False
                    break
            if same:
                return token
        start = ends[token]
    return -1


@subkernel
def _candidates(data: Bytes, index: int, stop: int, first_bytes: Bytes) -> np.uint64:
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
    """Write the tokens found to found[count:]; returns their number and how far the search got."""
    position = start
    while position < stop:
        mask = _candidates(data, position, min(stop, position + _WIDTH), first_bytes)
        next_position = position + _WIDTH
        while mask:
            index = position + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
            token = _match(data, index, stop, text, ends)
            if token < 0:
                continue
            if count == found.shape[0]:
                return count, index
            length = ends[token] - (ends[token - 1] if token > 0 else 0)
            found[count, 0] = index
            found[count, 1] = index + length
            found[count, 2] = order[token]
            count += 1
            next_position = index + length
            break
        position = next_position
    return count, stop
