"""Where the special tokens stand in a text: the longest one at each place, from left to right."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.bits import equal_mask, trailing_zeros
from trafo.tokenizer.kernels import kernel
from trafo.tokenizer.utf8 import Bytes

Cuts = NDArray[np.int64]  # (number found, 3): start, stop, index of the special token

NO_CUTS: Cuts = np.zeros((0, 3), np.int64)
_BLOCK = 64


class SpecialTokens:
    """A set of special tokens, ready to be searched for. Indexes are those of the list given."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        if "" in self.tokens:
            raise InputError("a special token is empty", hint="every one needs a character")
        encoded = [token.encode() for token in self.tokens]
        self.longest = max(map(len, encoded), default=0)
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]), reverse=True)
        self._order = np.array(order, np.int64)
        self._text = np.frombuffer(b"".join(encoded[i] for i in order) + b"\0", np.uint8)
        self._ends = np.cumsum([len(encoded[i]) for i in order], dtype=np.int64)
        self._first_bytes = np.array(sorted({token[0] for token in encoded}), np.uint8)
        self._found = np.zeros((64, 3), np.int64)

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def find(self, data: Bytes, start: int, stop: int) -> Cuts:
        """All special tokens in data[start:stop]."""
        if not self.tokens:
            return NO_CUTS
        found = np.empty((64, 3), np.int64)
        count = 0
        while True:
            count, start = _find_specials(
                data, start, stop, self._first_bytes, self._text, self._ends, self._order, found, count
            )
            if start >= stop:
                return found[:count]
            found = np.concatenate([found, np.empty_like(found)])


@kernel
def _match(data: Bytes, index: int, stop: int, text: Bytes, ends: NDArray[np.int64]) -> int:
    """Which token, in the order given, stands at index; -1 if none."""
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


@kernel
def _candidates(data: Bytes, index: int, stop: int, first_bytes: Bytes) -> np.uint64:
    """Bit i is set where data[index + i] is the first byte of a token, for up to 64 bytes."""
    mask = np.uint64(0)
    if index + _BLOCK <= data.size:
        for byte in first_bytes:
            mask |= equal_mask(data, index, byte)
        if stop - index < _BLOCK:
            mask &= (np.uint64(1) << np.uint64(stop - index)) - np.uint64(1)
        return mask
    for i in range(stop - index):
        for byte in first_bytes:
            if data[index + i] == byte:
                mask |= np.uint64(1) << np.uint64(i)
    return mask


@kernel
def _find_specials(
    data: Bytes,
    start: int,
    stop: int,
    first_bytes: Bytes,
    text: Bytes,
    ends: NDArray[np.int64],
    order: NDArray[np.int64],
    found: Cuts,
    count: int,
) -> tuple[int, int]:
    """Write the tokens found to found[count:]; returns their number and where the search stands."""
    position = start
    while position < stop:
        mask = _candidates(data, position, min(stop, position + _BLOCK), first_bytes)
        block_end = position + _BLOCK
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
            block_end = index + length
            break
        position = block_end
    return count, stop
