"""Word counts -> merges: byte-pair encoding on flat arrays.

The plain algorithm counts all pairs again after each merge. Here a merge touches only the places
where its pair is. The words lie end to end in `cells`, two int32 for each byte: a symbol, and the
number of the pair that begins there. A symbol of several bytes stands in its first and in its last
cell, so both neighbours of any symbol are one step away. A -1 is between two words.

    l o w -1 l o w e r       after merging `o w` (symbol 256):       l 256 256 -1 l 256 256 e r

Each pair has its count and a list of the places where it begins. To merge a pair, `_merge_places`
walks that list: it lowers the counts of the two pairs that overlap the place, writes the new
symbol, and counts the pairs that it makes with its neighbours. A place whose cell names another
pair by now was merged away before and is passed over. `pair_heap.py` finds the next pair.

Three facts keep it simple:
 - No two merges make the same bytes. (Within the bytes of a token, as long as no merge crosses
   their borders, the merges go as if the token stood alone. So wherever the same bytes become one
   symbol, they do so by the same merge.) Symbols and byte strings are therefore the same thing.
 - A pair with the new symbol in it arises during that one merge and can only become rarer
   afterwards. So its places form one list, ascending, and pairs need no hash table: during a
   merge they are told apart by the other symbol alone.
 - As counts only fall, an entry of the heap can be too high but never too low: the top is right
   if its count is still true, and goes back with its true count if not.
"""

from typing import NamedTuple

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Int32s, Int64s, Uint32s
from trafo.tokenizer.kernels.pair_heap import Heap, Pairs, Symbols, may_merge, pop_best, push

NONE = -1  # no pair begins here; or, as a symbol: between two words


class Places(NamedTuple):
    """Where pairs begin: the cell, and how often its word occurs."""

    cell: Uint32s
    weight: Int64s


@kernel
def lay_out(
    text: Bytes, ends: Ends, counts: Int64s, cells: Int32s, pair_ids: Int32s, pairs: Pairs
) -> int:
    """Write words to the cells, each byte a symbol, number their pairs and return how many.

    `pair_ids` has room for the number of each pair of bytes, and none has one yet.
    """
    num_pairs = np.int64(0)
    cells[0] = cells[1] = NONE
    cell, start = 1, 0
    for word in range(ends.size):
        for i in range(start, ends[word]):
            pair = np.int64(NONE)
            if i + 1 < ends[word]:
                key = np.int64(text[i]) << 8 | np.int64(text[i + 1])
                if pair_ids[key] == NONE:
                    pair_ids[key] = num_pairs
                    pairs.left[num_pairs] = text[i]
                    pairs.right[num_pairs] = text[i + 1]
                    num_pairs += 1
                pair = np.int64(pair_ids[key])
                pairs.count[pair] += counts[word]
                pairs.size[pair] += 1
            cells[2 * cell] = text[i]
            cells[2 * cell + 1] = pair
            cell += 1
        cells[2 * cell] = cells[2 * cell + 1] = NONE
        cell += 1
        start = ends[word]
    return num_pairs


@kernel
def list_places(
    cells: Int32s, counts: Int64s, pairs: Pairs, num_pairs: int, places: Places
) -> None:
    """Sort the places of all pairs by pair."""
    total = 0
    for pair in range(num_pairs):
        pairs.first[pair] = total
        total += pairs.size[pair]
        pairs.size[pair] = 0
    word, cell = 0, 1
    while word < counts.size:
        pair = cells[2 * cell + 1]
        if pair != NONE:
            place = pairs.first[pair] + pairs.size[pair]
            places.cell[place] = cell
            places.weight[place] = counts[word]
            pairs.size[pair] += 1
        word += cells[2 * cell] == NONE
        cell += 1


# What the state holds: the numbers of merges, pairs, places, heap entries and symbols.
MERGES, PAIRS, PLACES, HEAP, SYMBOLS = range(5)

# Why `merge_best_pairs` came back.
DONE, PAIRS_FULL, TEXT_FULL = range(3)


class NewPairs(NamedTuple):
    """The pairs that one merge makes: found by the symbol beside the new one, and their places."""

    by_left: Int32s  # pair id for each symbol to the left of the new one, or NONE
    by_right: Int32s
    pair: Int32s  # for each new place: the pair, the cell, the weight
    cell: Uint32s
    weight: Int64s


class MergeArrays(NamedTuple):
    """Everything that merging works on."""

    cells: Int32s
    places: Places
    pairs: Pairs
    heap: Heap
    symbols: Symbols
    new_pairs: NewPairs
    merges: Int32s  # left and right symbol of each
    state: Int64s


@subkernel
def _add_place(
    pair_of: Int32s,
    symbol: int,
    left: int,
    right: int,
    cell: int,
    weight: int,
    pairs: Pairs,
    num_pairs: int,
    new_pairs: NewPairs,
    num_new: int,
) -> int:
    """Note that the new symbol makes a pair with `symbol` at a cell, and return the pair.

    A pair that the merge has not made before becomes number `num_pairs`.
    """
    if pair_of[symbol] == NONE:
        pair_of[symbol] = num_pairs
        pairs.left[num_pairs] = left
        pairs.right[num_pairs] = right
        pairs.count[num_pairs] = 0
        pairs.size[num_pairs] = 0
    made = pair_of[symbol]
    pairs.count[made] += weight
    pairs.size[made] += 1
    new_pairs.pair[num_new] = made
    new_pairs.cell[num_new] = cell
    new_pairs.weight[num_new] = weight
    return made


@subkernel
def _merge_places(
    pair: int, new: int, place_cells: Uint32s, place_weights: Int64s, arrays: MergeArrays
) -> tuple[int, int]:
    """Put `new` wherever `pair` begins, and return the numbers of pairs and new places."""
    cells, length = arrays.cells, arrays.symbols.length
    pairs, new_pairs = arrays.pairs, arrays.new_pairs
    num_pairs, num_new = arrays.state[PAIRS], 0
    left, right = pairs.left[pair], pairs.right[pair]
    left_length, new_length = length[left], length[left] + length[right]
    for i in range(place_cells.size):
        cell = np.int64(place_cells[i])
        if cells[2 * cell + 1] != pair:
            continue  # merged away since it was listed
        weight = place_weights[i]
        second = cell + left_length
        after = cell + new_length

        symbol = cells[2 * cell - 2]
        if symbol != NONE:
            before = cell - length[symbol]
            pairs.count[cells[2 * before + 1]] -= weight
            made = _add_place(
                new_pairs.by_left, symbol, symbol, new, before, weight,
                pairs, num_pairs, new_pairs, num_new,
            )  # fmt: skip
            num_pairs = max(num_pairs, made + 1)
            num_new += 1
            cells[2 * before + 1] = made

        symbol = cells[2 * after]
        made = NONE
        if symbol != NONE:
            pairs.count[cells[2 * second + 1]] -= weight
            made = _add_place(
                new_pairs.by_right, symbol, new, symbol, cell, weight,
                pairs, num_pairs, new_pairs, num_new,
            )  # fmt: skip
            num_pairs = max(num_pairs, made + 1)
            num_new += 1

        cells[2 * second + 1] = NONE
        cells[2 * cell] = new
        cells[2 * cell + 1] = made
        cells[2 * after - 2] = new
    return num_pairs, num_new


@subkernel
def _list_new_places(
    first_pair: int,
    num_pairs: int,
    new_pairs: NewPairs,
    num_new: int,
    pairs: Pairs,
    places: Places,
    num_places: int,
) -> int:
    """Sort the new places by pair, after all others, and return how many are in use."""
    for pair in range(first_pair, num_pairs):
        new_pairs.by_left[pairs.left[pair]] = NONE
        new_pairs.by_right[pairs.right[pair]] = NONE
        pairs.first[pair] = num_places
        num_places += pairs.size[pair]
        pairs.size[pair] = 0
    for i in range(num_new):
        pair = new_pairs.pair[i]
        place = pairs.first[pair] + pairs.size[pair]
        places.cell[place] = new_pairs.cell[i]
        places.weight[place] = new_pairs.weight[i]
        pairs.size[pair] += 1
    return num_places


@subkernel
def _new_symbol(pair: int, new: int, pairs: Pairs, symbols: Symbols) -> None:
    """Enter the bytes of a merged pair."""
    left, right = pairs.left[pair], pairs.right[pair]
    start = symbols.offset[new]
    for half in (left, right):
        for i in range(symbols.length[half]):
            symbols.text[start + i] = symbols.text[symbols.offset[half] + i]
        start += symbols.length[half]
    symbols.length[new] = start - symbols.offset[new]
    symbols.offset[new + 1] = start
    head = np.uint64(0)
    for i in range(8):
        byte = symbols.text[symbols.offset[new] + i] if i < symbols.length[new] else 0
        head = head << np.uint64(8) | np.uint64(byte)
    symbols.head[new] = head


@subkernel
def _full_array(pair: int, num_pairs: int, num_symbols: int, pairs: Pairs, symbols: Symbols) -> int:
    """Say which array could overflow during the merge of a pair, or DONE if none."""
    if num_pairs + 2 * min(pairs.size[pair], num_symbols + 1) > pairs.left.size:
        return PAIRS_FULL
    new_length = symbols.length[pairs.left[pair]] + symbols.length[pairs.right[pair]]
    if symbols.offset[num_symbols] + new_length > symbols.text.size:
        return TEXT_FULL
    return DONE


@subkernel
def _merge(pair: int, arrays: MergeArrays) -> None:
    """Merge a pair wherever it begins, and enter the new pairs into the heap."""
    pairs, places, new_pairs = arrays.pairs, arrays.places, arrays.new_pairs
    symbols, state = arrays.symbols, arrays.state
    old_pairs, new = state[PAIRS], state[SYMBOLS]
    _new_symbol(pair, new, pairs, symbols)
    start, stop = pairs.first[pair], pairs.first[pair] + pairs.size[pair]
    num_pairs, num_new = _merge_places(
        pair, new, places.cell[start:stop], places.weight[start:stop], arrays
    )
    pairs.count[pair] = 0
    state[PLACES] = _list_new_places(
        old_pairs, num_pairs, new_pairs, num_new, pairs, places, state[PLACES]
    )
    for made in range(old_pairs, num_pairs):
        if pairs.count[made] > 0 and may_merge(made, pairs, symbols):
            state[HEAP] = push(arrays.heap, state[HEAP], made, pairs, symbols)
    state[PAIRS] = num_pairs
    state[SYMBOLS] = new + 1


@kernel
def merge_best_pairs(most: int, arrays: MergeArrays) -> int:
    """Merge up to `most` pairs, the best first.

    Comes back early, with the reason, if an array could overflow during the next merge. The places
    cannot: each merge of two symbols makes at most two, and there are fewer such merges than places
    in the beginning.
    """
    pairs, heap, symbols, state = arrays.pairs, arrays.heap, arrays.symbols, arrays.state
    while state[MERGES] < most:
        pair, state[HEAP] = pop_best(heap, state[HEAP], pairs, symbols)
        if pair == NONE:
            break
        reason = _full_array(pair, state[PAIRS], state[SYMBOLS], pairs, symbols)
        if reason != DONE:
            state[HEAP] = push(heap, state[HEAP], pair, pairs, symbols)
            return reason
        _merge(pair, arrays)
        arrays.merges[2 * state[MERGES]] = pairs.left[pair]
        arrays.merges[2 * state[MERGES] + 1] = pairs.right[pair]
        state[MERGES] += 1
    return DONE
