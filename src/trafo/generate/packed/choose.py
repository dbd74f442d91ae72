"""The best continuations of every sentence's hypotheses, in one compiled call.

The rows go through all layers, the output head and the choice. The hypotheses of a sentence come
best first, and a continuation is never more probable than what it continues. So the best hypothesis
of each sentence goes first; the others are computed only if they are more probable than the worst
of `beam` continuations found so far that do not end.
"""

import math

import numpy as np
from numpy.typing import NDArray

from trafo.generate.beam_decoder import Continuations
from trafo.generate.engine.cache import StepBatch
from trafo.generate.packed.int_kernels import int8_products
from trafo.generate.packed.kernels import Floats, Ints, exp, products
from trafo.generate.packed.layers import ONLY, Cache, Linear, Weights, hidden_states, norm
from trafo.generate.packed.tiles import LANES
from trafo.runtime.kernels import float_kernel, float_subkernel

Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

TOGETHER = 192
"""most rows per pass through the layers: their hidden states fit into the processor's cache"""

CHUNK = 32
"""panels of the head whose logits are computed and ranked together"""

LOOK = 64
"""logits that are compared with the lowest one kept in one vectorized loop"""


@float_kernel
def decode_and_choose(
    weights: Weights,
    batch: StepBatch,
    cache: Cache,
    totals: Doubles,
    is_end: Bools,
    padding: int,
    best: Continuations,
) -> None:
    """Fill in `best`; `totals` (sentences, alive) are the hypotheses' log-probabilities.

    The batch has a token for every hypothesis; `is_end` says which tokens end one. A padding below
    0 is none.
    """
    best.logprobs[:] = -np.inf
    best.tokens[:] = max(padding, 0)
    best.parents[:] = 0
    for rank, until in ((0, 1), (1, totals.shape[1])):
        rows = _rows_that_matter(totals, rank, until, is_end, best)
        for start in range(0, rows.shape[0], TOGETHER):
            some = rows[start : start + TOGETHER]
            part = StepBatch(
                batch.ids[some],
                batch.positions[some],
                some,
                batch.tables,
                batch.wanted,
                batch.source_tables,
                batch.source_lengths,
            )
            x = norm(hidden_states(weights, part, cache, False), weights.final_norm, ONLY)
            _choose(x, weights, some, totals, padding, best)


@float_subkernel
def _rows_that_matter(
    totals: Doubles, rank: int, until: int, is_end: Bools, best: Continuations
) -> Ints:
    """The rows of these ranks whose continuations can be among those that are kept."""
    values, tokens, _ = best
    sentences, alive = totals.shape
    beam = values.shape[1] // 2
    rows = np.empty(sentences * (until - rank), np.int64)
    count = 0
    for sentence in range(sentences):
        num_kept, worst = 0, -np.inf
        for place in range(values.shape[1]):
            if num_kept < beam and not is_end[tokens[sentence, place]]:
                num_kept += 1
                worst = values[sentence, place]
        for place in range(rank, until):
            if totals[sentence, place] > worst:
                rows[count] = sentence * alive + place
                count += 1
    return rows[:count]


@float_subkernel
def _choose(
    x: Floats, weights: Weights, rows: Ints, totals: Doubles, padding: int, best: Continuations
) -> None:
    """Add the best continuations of these rows to those of their sentences."""
    values, tokens, parents = best
    alive, number = totals.shape[1], values.shape[1]
    # Of one hypothesis beam search needs no more than `beam` tokens and the end.
    size = number // 2 + 1
    highest = np.full((rows.shape[0], size), -np.inf, np.float32)
    ids = np.empty((rows.shape[0], size), np.int64)
    vocab = weights.embeddings.shape[0]
    logsumexp = _highest_logits(x, weights.head, vocab, padding, highest, ids)
    for i in range(rows.shape[0]):
        sentence, parent = rows[i] // alive, rows[i] % alive
        total = totals[sentence, parent]
        for place in range(size):
            value = total + (highest[i, place] - logsumexp[i])
            if not value > values[sentence, number - 1]:
                break
            at = _insert(values[sentence], value)
            _shift_in(tokens[sentence], at, ids[i, place])
            _shift_in(parents[sentence], at, parent)


@float_subkernel
def _highest_logits(
    x: Floats, head: Linear, vocab: int, padding: int, highest: Floats, ids: Ints
) -> Floats:
    """The highest logits of each row, best first; and log(sum(exp(logits))) of the row."""
    num_panels = max(head.floats.shape[1], head.ints.shape[1])
    logits = np.empty((x.shape[0], CHUNK * LANES), np.float32)
    tops = np.full(ids.shape[0], -np.inf, np.float32)
    sums = np.zeros(ids.shape[0], np.float32)
    for first in range(0, num_panels, CHUNK):
        start, last = first * LANES, first + CHUNK
        if head.scales.shape[0]:
            scales = head.scales[0, start : start + CHUNK * LANES]
            int8_products(x, head.ints[0, first:last], scales, logits)
        else:
            products(x, head.floats[0, first:last], logits)
        size = min(CHUNK * LANES, vocab - start)
        for i in range(ids.shape[0]):
            row = logits[i, :size]
            if head.bias.shape[0]:
                for k in range(size):
                    row[k] += head.bias[0, start + k]
            _keep_highest(row, start, padding, highest[i], ids[i])
            top = highest[i, 0]
            if start <= padding < start + size:
                top = max(top, row[padding - start])
            if top > tops[i]:
                sums[i] *= exp(tops[i] - top)
                tops[i] = top
            sums[i] += _sum_of_exp(row, tops[i])
    for i in range(ids.shape[0]):
        sums[i] = tops[i] + math.log(sums[i])
    return sums


@float_subkernel
def _sum_of_exp(row: Floats, top: np.float32) -> np.float32:
    total = np.float32(0)
    for k in range(row.shape[0]):
        total += exp(row[k] - top)
    return total


@float_subkernel
def _keep_highest(row: Floats, start: int, padding: int, highest: Floats, ids: Ints) -> None:
    """Logits of the tokens from `start` on; of equal ones the first comes first."""
    for first in range(0, row.shape[0], LOOK):
        part = row[first : first + LOOK]
        num_higher = np.int32(0)
        least = highest[-1]
        for k in range(part.shape[0]):
            num_higher += np.int32(part[k] > least)
        if not num_higher:
            continue
        for k in range(part.shape[0]):
            if part[k] > highest[-1] and start + first + k != padding:
                at = _insert(highest, part[k])
                _shift_in(ids, at, start + first + k)


@float_subkernel
def _insert(values: Floats | Doubles, value: float) -> int:
    """Put a value that is higher than the last where it belongs; the place."""
    place: int = values.shape[0] - 1
    while place > 0 and values[place - 1] < value:
        values[place] = values[place - 1]
        place -= 1
    values[place] = value
    return place


@float_subkernel
def _shift_in(values: Ints, at: int, value: int) -> None:
    """Insert a value; the last one falls out."""
    for place in range(values.shape[0] - 1, at, -1):
        values[place] = values[place - 1]
    values[at] = value
