"""A hash table whose keys are pairs of symbols.

Open addressing in one flat array, two uint64 to a slot: the pair, left << 32 | right, and its
value. That is rank << 32 | merged id for encoding; a pair's number or its count for training.
"""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Uint64s

PairTable = Uint64s

NO_VALUE = np.uint64(0xFFFFFFFFFFFFFFFF)  # of a free slot; greater than any value

_HALF = np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def new_pair_table(num_pairs: int) -> PairTable:
    """An empty table that is at most half full with so many pairs."""
    return np.full(4 << max(4, num_pairs.bit_length()), NO_VALUE, np.uint64)


@subkernel
def pair_key(left: np.uint32, right: np.uint32) -> np.uint64:
    """Two symbols in one number."""
    return np.uint64(left) << _HALF | np.uint64(right)


@subkernel
def pair_hash(key: np.uint64) -> np.uint64:
    """32 bits in which all bits of a key take part."""
    return (key * _MIX) >> _HALF


@subkernel
def pair_slot(table: PairTable, key: np.uint64) -> int:
    """The index of the pair's slot, or of the free one it would take."""
    slot = 2 * np.int64(pair_hash(key) & np.uint64(table.size // 2 - 1))
    while table[slot + 1] != NO_VALUE and table[slot] != key:
        slot += 2
        if slot == table.size:
            slot = 0
    return slot


@kernel
def fill_pair_table(table: PairTable, keys: Uint64s, values: Uint64s) -> None:
    """Enter pairs with their values, of which the first counts for equal pairs."""
    for i in range(keys.size):
        slot = pair_slot(table, keys[i])
        if table[slot + 1] == NO_VALUE:
            table[slot] = keys[i]
            table[slot + 1] = values[i]
