"""The words that are merged, as flat arrays, and where their pairs begin.

The words lie end to end in `cells`, two int32 a byte: a symbol and the pair it begins. A symbol
of several bytes is in its first and in its last cell, so that both neighbours of any symbol
are one step away; a -1 is between words.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trafo.runtime.kernels import kernel
from trafo.tokenizer.kernels.arrays import Ends, Int32s, Int64s, Uint32s
from trafo.tokenizer.kernels.pair_heap import Pairs
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable, pair_key, pair_slot

NONE = -1  # no pair begins here; or, as a symbol: between two words


class Places(NamedTuple):
    """Where pairs begin: the cell, and how often its word occurs."""

    cell: Uint32s
    weight: Int64s


@kernel
def lay_out(
    symbols: NDArray[np.integer[Any]],
    ends: Ends,
    counts: Int64s,
    length: Int64s,
    cells: Int32s,
    pair_ids: PairTable,
    pairs: Pairs,
) -> int:
    """Write words, given as symbols, to the cells and number their pairs; returns how many pairs.

    `pair_ids` is an empty hash table, left as it is afterwards: two symbols -> number of the pair.
    """
    num_pairs = np.int64(0)
    cells[0] = cells[1] = NONE
    cell, start = 1, 0
    for word in range(ends.size):
        stop = ends[word]
        for i in range(start, stop):
            symbol = np.int64(symbols[i])
            last = cell + length[symbol] - 1
            pair = np.int64(NONE)
            if i + 1 < stop:
                key = pair_key(symbol, symbols[i + 1])
                slot = pair_slot(pair_ids, key)
                if pair_ids[slot + 1] == NO_VALUE:
                    pair_ids[slot] = key
                    pair_ids[slot + 1] = np.uint64(num_pairs)
                    pairs.left[num_pairs] = symbol
                    pairs.right[num_pairs] = symbols[i + 1]
                    num_pairs += 1
                pair = np.int64(pair_ids[slot + 1])
                pairs.count[pair] += counts[word]
                pairs.size[pair] += 1
            for inner in range(cell, last + 1):
                cells[2 * inner] = symbol
                cells[2 * inner + 1] = NONE
            cells[2 * cell + 1] = pair
            cell = last + 1
        cells[2 * cell] = cells[2 * cell + 1] = NONE
        cell += 1
        start = stop
    return num_pairs


@kernel
def list_places(
    cells: Int32s, counts: Int64s, length: Int64s, pairs: Pairs, num_pairs: int, places: Places
) -> None:
    """Sort the places of all pairs by pair."""
    total = 0
    for pair in range(num_pairs):
        pairs.first[pair] = total
        total += pairs.size[pair]
        pairs.size[pair] = 0
    word, cell = 0, 1
    while word < counts.size:
        symbol = cells[2 * cell]
        if symbol == NONE:
            word += 1
            cell += 1
            continue
        pair = cells[2 * cell + 1]
        if pair != NONE:
            place = pairs.first[pair] + pairs.size[pair]
            places.cell[place] = cell
            places.weight[place] = counts[word]
            pairs.size[pair] += 1
        cell += length[symbol]
