"""UTF-8 inside the kernels: one character at a time, and where a text stops being UTF-8."""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes
from trafo.tokenizer.kernels.bits import ascii_masks


@subkernel
def character_at(data: Bytes, index: int) -> tuple[int, int]:
    """The code point that starts at index, and its length in bytes. The text must be valid."""
    lead = np.int64(data[index])
    if lead < 0x80:
        return lead, 1
    second = np.int64(data[index + 1]) & 0x3F
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = np.int64(data[index + 2]) & 0x3F
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    fourth = np.int64(data[index + 3]) & 0x3F
    return (lead & 0x07) << 18 | second << 12 | third << 6 | fourth, 4


@subkernel
def _sequence_length(data: Bytes, index: int, stop: int) -> int:
    """Measure the well-formed sequence at index (Unicode standard, table 3-7), 0 if none."""
    lead = data[index]
    low, high = 0x80, 0xBF
    if lead < 0x80:
        return 1
    if 0xC2 <= lead <= 0xDF:
        length = 2
    elif 0xE0 <= lead <= 0xEF:
        length = 3
        if lead == 0xE0:
            low = 0xA0  # shorter forms exist
        elif lead == 0xED:
            high = 0x9F  # surrogates
    elif 0xF0 <= lead <= 0xF4:
        length = 4
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F  # past U+10FFFF
    else:
        return 0
    if index + length > stop or not low <= data[index + 1] <= high:
        return 0
    for i in range(index + 2, index + length):
        if data[i] & 0xC0 != 0x80:
            return 0
    return length


@kernel
def first_invalid(data: Bytes) -> int:
    """The index of the first byte that is not part of valid UTF-8, or -1."""
    index, stop = 0, data.size
    while index < stop:
        if index + 64 <= stop and ascii_masks(data, index)[5] == 0:
            index += 64
            continue
        end = min(index + 64, stop)
        while index < end:
            length = _sequence_length(data, index, stop)
            if length == 0:
                return index
            index += length
    return -1
